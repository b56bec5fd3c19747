#include "kernels/elementwise/add.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void Add(Exec& exec, const AddArgs& args) {
  DispatchFloat(args.a.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* a = args.a.as<T>();
    const T* b = args.b.as<T>();
    T* y = args.y.as<T>();
    ParallelElements(exec, args.a.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = T(A(a[i]) + A(b[i]));
    });
  });
}

}  // namespace trainyard::cpu
