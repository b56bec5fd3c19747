#include "kernels/bench/bench.h"
#include "kernels/swiglu.h"

namespace trainyard::bench {
namespace {

constexpr int64_t kT = 4096, kF = 2048;

void SwiGluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, 2 * kF}), y = o.Make(dtype, {kT, kF});
  Measure(state, SwiGluForwardArgs{.x = x, .y = y}, {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(SwiGluForward)->Apply(Trained);

void SwiGluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, 2 * kF}), dy = o.Make(dtype, {kT, kF});
  Measure(state, SwiGluBackwardArgs{.dy = dy, .x = x, .dx = o.Make(dtype, x.shape)},
          {.bytes = double(2 * x.bytes() + dy.bytes())});
}
BENCHMARK(SwiGluBackward)->Apply(Trained);

}  // namespace
}  // namespace trainyard::bench
