#include "kernels/bench/bench.h"
#include "kernels/random_normal.h"

namespace trainyard::bench {
namespace {

void RandomNormal(benchmark::State& state) {
  Operands o;
  const StepState step{.seed = 1};
  const Tensor y = o.Make(DType::kF32, {768, 768});
  Measure(
      state,
      RandomNormalArgs{.y = y, .stream = 1, .stddev = 0.02, .global_columns = 768, .state = &step},
      {.bytes = double(y.bytes())});
}
BENCHMARK(RandomNormal)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trainyard::bench
