#include "bench/kernels/bench.h"
#include "kernels/loss/mean_square.h"

namespace trainyard::bench::mean_square {

void MeanSquare(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {65536, 16});
  Measure(state,
          MeanSquareArgs{.x = x,
                         .target = o.Make(dtype, x.shape),
                         .state = o.State({.loss_scale = 1e-5}),
                         .dx = o.Make(dtype, x.shape)},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(MeanSquare)->Apply(Trained);

}  // namespace trainyard::bench::mean_square
