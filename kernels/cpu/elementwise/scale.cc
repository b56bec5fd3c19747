#include "kernels/elementwise/scale.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void Scale(Exec& exec, const ScaleArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const A factor = A(args.factor);
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = T(factor * A(x[i]));
    });
  });
}

}  // namespace trainyard::cpu
