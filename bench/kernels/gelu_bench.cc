#include "bench/kernels/bench.h"
#include "kernels/elementwise/gelu.h"

namespace trainyard::bench::gelu {

void GeluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state, GeluForwardArgs{.x = x, .y = o.Make(dtype, x.shape)},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(GeluForward)->Apply(Trained);

void GeluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state,
          GeluBackwardArgs{.dy = o.Make(dtype, x.shape), .x = x, .dx = o.Make(dtype, x.shape)},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(GeluBackward)->Apply(Trained);

}  // namespace trainyard::bench::gelu
