#include "bench/kernels/bench.h"
#include "kernels/elementwise/squared_relu.h"

namespace trainyard::bench::squared_relu {

void SquaredReluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state, SquaredReluForwardArgs{.x = x, .y = o.Make(dtype, x.shape)},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(SquaredReluForward)->Apply(Trained);

void SquaredReluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072}), dy = o.Make(dtype, x.shape);
  Measure(state, SquaredReluBackwardArgs{.dy = dy, .x = x, .dx = o.Make(dtype, x.shape)},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(SquaredReluBackward)->Apply(Trained);

}  // namespace trainyard::bench::squared_relu
