#include "bench/kernels/bench.h"
#include "kernels/elementwise/scaled_swiglu.h"

namespace trainyard::bench::scaled_swiglu {

constexpr int64_t kR = 4096, kF = 2048;

Tensor All(Operands& o) {
  return o.MakeOf({1}, [](int64_t) { return int32_t(kR); });
}

void ScaledSwiGluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kR, 2 * kF}), y = o.Make(dtype, {kR, kF});
  Measure(state,
          ScaledSwiGluForwardArgs{.x = x, .w = o.Make(DType::kF32, {kR}), .count = All(o), .y = y},
          {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(ScaledSwiGluForward)->Apply(Trained);

void ScaledSwiGluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kR, 2 * kF}), dy = o.Make(dtype, {kR, kF});
  Measure(state,
          ScaledSwiGluBackwardArgs{.dy = dy,
                                   .x = x,
                                   .w = o.Make(DType::kF32, {kR}),
                                   .count = All(o),
                                   .dx = o.Make(dtype, x.shape),
                                   .dw = o.Make(DType::kF32, {kR})},
          {.bytes = double(2 * x.bytes() + dy.bytes())});
}
BENCHMARK(ScaledSwiGluBackward)->Apply(Trained);

}  // namespace trainyard::bench::scaled_swiglu
