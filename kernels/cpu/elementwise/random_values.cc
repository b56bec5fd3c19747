#include "kernels/elementwise/random_values.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void RandomValues(Exec& exec, const RandomValuesArgs& args) {
  if (args.distribution == Distribution::kBytes) {
    const int64_t columns = args.y.shape.back();
    uint8_t* y = args.y.as<uint8_t>();
    return ParallelElements(exec, args.y.elements(), [=, &args](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = RandomByte(args, columns, i);
    });
  }
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t columns = args.y.shape.back();
    T* y = args.y.as<T>();
    ParallelElements(exec, args.y.elements(), [=, &args](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y[i] = T(Accumulate<T>(RandomValue(args, columns, i)));
      }
    });
  });
}

}  // namespace trainyard::cpu
