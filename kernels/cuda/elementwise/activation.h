// Kernels of activations, which go element by element and are bound by memory. F has two static
// device functions: Value(x), and Backward(d, x) for the gradient d of the value.

#pragma once

#include "kernels/cuda/launch.h"

namespace trainyard::cuda {

template <typename T, typename F>
struct ActivationForwardBody {
  const T* x;
  T* y;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(F::Value(A(xs.v[n])));
    StorePack(y + i, ys);
  }
};

template <typename T, typename F>
struct ActivationBackwardBody {
  const T* dy;
  const T* x;
  T* dx;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto dys = LoadPack<T, kCount>(dy + i), xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> dxs;
    for (int n = 0; n < kCount; ++n) dxs.v[n] = T(F::Backward(A(dys.v[n]), A(xs.v[n])));
    StorePack(dx + i, dxs);
  }
};

template <typename F, typename Args>
void ActivationForward(Exec& exec, const Args& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const ActivationForwardBody<T, F> body = {args.x.template as<T>(), args.y.template as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.x, body.y), body);
  });
}

template <typename F, typename Args>
void ActivationBackward(Exec& exec, const Args& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const ActivationBackwardBody<T, F> body = {args.dy.template as<T>(), args.x.template as<T>(),
                                               args.dx.template as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.dy, body.x, body.dx), body);
  });
}

}  // namespace trainyard::cuda
