#include "bench/kernels/bench.h"
#include "kernels/sums/column_sum.h"

namespace trainyard::bench::column_sum {

void ColumnSum(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3072});
  Measure(state,
          ColumnSumArgs{.x = x, .y = o.Make(DType::kF32, {3072}), .write = Write::kOverwrite},
          {.bytes = double(x.bytes())});
}
BENCHMARK(ColumnSum)->Apply(Trained);

}  // namespace trainyard::bench::column_sum
