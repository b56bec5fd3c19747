#include "bench/kernels/bench.h"
#include "kernels/elementwise/scaled_squared_relu.h"

namespace trainyard::bench::scaled_squared_relu {

constexpr int64_t kR = 4096, kF = 2048;

Tensor All(Operands& o) {
  return o.MakeOf({1}, [](int64_t) { return int32_t(kR); });
}

void ScaledSquaredReluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kR, kF}), y = o.Make(dtype, {kR, kF});
  Measure(
      state,
      ScaledSquaredReluForwardArgs{.x = x, .w = o.Make(DType::kF32, {kR}), .count = All(o), .y = y},
      {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(ScaledSquaredReluForward)->Apply(Trained);

void ScaledSquaredReluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kR, kF}), dy = o.Make(dtype, {kR, kF});
  Measure(state,
          ScaledSquaredReluBackwardArgs{.dy = dy,
                                        .x = x,
                                        .w = o.Make(DType::kF32, {kR}),
                                        .count = All(o),
                                        .dx = o.Make(dtype, x.shape),
                                        .dw = o.Make(DType::kF32, {kR})},
          {.bytes = double(2 * x.bytes() + dy.bytes())});
}
BENCHMARK(ScaledSquaredReluBackward)->Apply(Trained);

}  // namespace trainyard::bench::scaled_squared_relu
