// Kernels of activations, which go element by element. F has two static functions: Value(x), and
// Backward(d, x) for the gradient d of the value.

#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

template <typename F, typename Args>
void ActivationForward(const Exec& exec, const Args& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.template as<T>();
    T* y = args.y.template as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = T(F::Value(A(x[i])));
    });
  });
}

template <typename F, typename Args>
void ActivationBackward(const Exec& exec, const Args& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const T* x = args.x.template as<T>();
    const T* dy = args.dy.template as<T>();
    T* dx = args.dx.template as<T>();
    ParallelElements(exec, args.x.elements(), [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = T(F::Backward(A(dy[i]), A(x[i])));
    });
  });
}

}  // namespace trainyard::cpu
