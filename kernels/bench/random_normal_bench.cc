#include "kernels/bench/bench.h"
#include "kernels/random_normal.h"

namespace trainyard::bench {
namespace {

void RandomNormal(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.seed = 1});
  const Tensor y = o.Make(DType::kF32, {768, 768});
  Measure(
      state,
      RandomNormalArgs{.y = y, .stream = 1, .stddev = 0.02, .global_columns = 768, .state = step},
      {.bytes = double(y.bytes())});
}
BENCHMARK(RandomNormal)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trainyard::bench
