#include "common/rng.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/random_normal.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct RandomNormalBody {
  T* y;
  int64_t columns, global_columns, first_row, first_column;
  uint64_t stream;
  double mean, stddev;
  const StepState* state;

  __device__ void operator()(int64_t i) const {
    const int64_t row = first_row + i / columns;
    const int64_t index = row * global_columns + first_column + i % columns;
    const double normal = Normal(state->seed, stream, uint64_t(index));
    y[i] = T(Accumulate<T>(mean + stddev * normal));
  }
};

}  // namespace

// Bound by its f64 arithmetic; runs once. The bits are those of the CPU, except for the last bits
// of f64: logarithm and cosine may differ between devices.
void RandomNormal(Exec& exec, const RandomNormalArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    ForEach(exec, args.y.elements(),
            RandomNormalBody<T>{.y = args.y.as<T>(),
                                .columns = args.y.shape.back(),
                                .global_columns = args.global_columns,
                                .first_row = args.first_row,
                                .first_column = args.first_column,
                                .stream = args.stream,
                                .mean = args.mean,
                                .stddev = args.stddev,
                                .state = args.state});
  });
}

}  // namespace trainyard::cuda
