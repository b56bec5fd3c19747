#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/random_values.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct RandomValuesBody {
  T* y;
  int64_t columns;
  RandomValuesArgs args;

  __device__ void operator()(int64_t i) const {
    y[i] = T(Accumulate<T>(RandomValue(args, columns, i)));
  }
};

struct RandomBytesBody {
  uint8_t* y;
  int64_t columns;
  RandomValuesArgs args;

  __device__ void operator()(int64_t i) const { y[i] = RandomByte(args, columns, i); }
};

}  // namespace

// Bound by its f64 arithmetic; runs once. The bits are those of the CPU, except for the last bits
// of normal f64: logarithm and cosine may differ between devices.
void RandomValues(Exec& exec, const RandomValuesArgs& args) {
  if (args.distribution == Distribution::kBytes) {
    return ForEach(
        exec, args.y.elements(),
        RandomBytesBody{.y = args.y.as<uint8_t>(), .columns = args.y.shape.back(), .args = args});
  }
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    ForEach(exec, args.y.elements(),
            RandomValuesBody<T>{.y = args.y.as<T>(), .columns = args.y.shape.back(), .args = args});
  });
}

}  // namespace trainyard::cuda
