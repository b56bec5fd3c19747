#include "bench/kernels/bench.h"
#include "kernels/elementwise/silu.h"

namespace trainyard::bench::silu {

void SiluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state, SiluForwardArgs{.x = x, .y = o.Make(dtype, x.shape)},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(SiluForward)->Apply(Trained);

void SiluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state,
          SiluBackwardArgs{.dy = o.Make(dtype, x.shape), .x = x, .dx = o.Make(dtype, x.shape)},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(SiluBackward)->Apply(Trained);

}  // namespace trainyard::bench::silu
