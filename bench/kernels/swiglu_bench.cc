#include "bench/kernels/bench.h"
#include "kernels/elementwise/swiglu.h"

namespace trainyard::bench::swiglu {

constexpr int64_t kT = 4096, kF = 2048;

void Forward(benchmark::State& state, GateActivation gate) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, 2 * kF}), y = o.Make(dtype, {kT, kF});
  Measure(state, SwiGluForwardArgs{.x = x, .y = y, .gate = gate},
          {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK_CAPTURE(Forward, swiglu, GateActivation::kSilu)->Apply(Trained);
BENCHMARK_CAPTURE(Forward, geglu, GateActivation::kGelu)->Apply(Trained);

void Backward(benchmark::State& state, GateActivation gate) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, 2 * kF}), dy = o.Make(dtype, {kT, kF});
  Measure(state, SwiGluBackwardArgs{.dy = dy, .x = x, .dx = o.Make(dtype, x.shape), .gate = gate},
          {.bytes = double(2 * x.bytes() + dy.bytes())});
}
BENCHMARK_CAPTURE(Backward, swiglu, GateActivation::kSilu)->Apply(Trained);
BENCHMARK_CAPTURE(Backward, geglu, GateActivation::kGelu)->Apply(Trained);

}  // namespace trainyard::bench::swiglu
