#include "kernels/silu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SiluForward(Exec& exec, const SiluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = T(A(x[i]) * Sigmoid(A(x[i])));
    });
  });
}

void SiluBackward(Exec& exec, const SiluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const A s = Sigmoid(A(x[i]));
        dx[i] = T(A(dy[i]) * s * (A(1) + A(x[i]) * (A(1) - s)));
      }
    });
  });
}

}  // namespace trainyard::cpu
