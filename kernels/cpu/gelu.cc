#include "kernels/gelu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

constexpr double kRootTwoOverPi = 0.7978845608028653558798921;
constexpr double kCubic = 0.044715;

template <typename A>
A Gelu(A x) {
  const A z = A(kRootTwoOverPi) * (x + A(kCubic) * x * x * x);
  return A(0.5) * x * (A(1) + Tanh(z));
}

template <typename A>
A GeluDerivative(A x) {
  const A tanh = Tanh(A(kRootTwoOverPi) * (x + A(kCubic) * x * x * x));
  const A dz = A(kRootTwoOverPi) * (A(1) + A(3 * kCubic) * x * x);
  return A(0.5) * (A(1) + tanh) + A(0.5) * x * (A(1) - tanh * tanh) * dz;
}

}  // namespace

void GeluForward(Exec& exec, const GeluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = T(Gelu(A(x[i])));
    });
  });
}

void GeluBackward(Exec& exec, const GeluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = T(A(dy[i]) * GeluDerivative(A(x[i])));
    });
  });
}

}  // namespace trainyard::cpu
