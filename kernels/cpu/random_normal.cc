#include "kernels/random_normal.h"

#include "common/rng.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void RandomNormal(Exec& exec, const RandomNormalArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t columns = args.y.shape.back();
    const uint64_t seed = args.state->seed;
    T* y = args.y.as<T>();
    ParallelElements(exec, args.y.elements(), [=, &args](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = args.first_row + i / columns;
        const int64_t index = row * args.global_columns + args.first_column + i % columns;
        const double normal = Normal(seed, args.stream, uint64_t(index));
        y[i] = T(Accumulate<T>(args.mean + args.stddev * normal));
      }
    });
  });
}

}  // namespace trainyard::cpu
