#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/gelu.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct GeluForwardBody {
  const T* x;
  T* y;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(A(xs.v[n]) * GeluGate(A(xs.v[n])));
    StorePack(y + i, ys);
  }
};

template <typename T>
struct GeluBackwardBody {
  const T* dy;
  const T* x;
  T* dx;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto dys = LoadPack<T, kCount>(dy + i), xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> dxs;
    for (int n = 0; n < kCount; ++n) {
      const A v = xs.v[n];
      dxs.v[n] = T(A(dys.v[n]) * GeluDerivative(v, GeluGate(v)));
    }
    StorePack(dx + i, dxs);
  }
};

}  // namespace

// Forward and backward are bound by memory.
void GeluForward(Exec& exec, const GeluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const GeluForwardBody<T> body = {args.x.as<T>(), args.y.as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.x, body.y), body);
  });
}

void GeluBackward(Exec& exec, const GeluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const GeluBackwardBody<T> body = {args.dy.as<T>(), args.x.as<T>(), args.dx.as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.dy, body.x, body.dx), body);
  });
}

}  // namespace trainyard::cuda
