#include "bench/kernels/bench.h"
#include "kernels/elementwise/random_values.h"

namespace trainyard::bench::random_values {

void RandomValues(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.seed = 1});
  const Tensor y = o.Make(DType::kF32, {768, 768});
  Measure(
      state,
      RandomValuesArgs{.y = y, .stream = 1, .scale = 0.02, .global_columns = 768, .state = step},
      {.bytes = double(y.bytes())});
}
BENCHMARK(RandomValues)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace trainyard::bench::random_values
