#include "kernels/squared_relu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SquaredReluForward(Exec& exec, const SquaredReluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const A positive = A(x[i]) < A(0) ? A(0) : A(x[i]);
        y[i] = T(positive * positive);
      }
    });
  });
}

void SquaredReluBackward(Exec& exec, const SquaredReluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const A positive = A(x[i]) < A(0) ? A(0) : A(x[i]);
        dx[i] = T(A(2) * A(dy[i]) * positive);
      }
    });
  });
}

}  // namespace trainyard::cpu
