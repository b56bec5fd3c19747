#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/squared_relu.h"

namespace trainyard::cuda {
namespace {

// A value that is no number stays none.
template <typename A>
__device__ A Positive(A x) {
  return x < A(0) ? A(0) : x;
}

template <typename T>
struct SquaredReluForwardBody {
  const T* x;
  T* y;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) {
      const A positive = Positive(A(xs.v[n]));
      ys.v[n] = T(positive * positive);
    }
    StorePack(y + i, ys);
  }
};

template <typename T>
struct SquaredReluBackwardBody {
  const T* dy;
  const T* x;
  T* dx;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const auto dys = LoadPack<T, kCount>(dy + i), xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> dxs;
    for (int n = 0; n < kCount; ++n) {
      dxs.v[n] = T(A(2) * A(dys.v[n]) * Positive(A(xs.v[n])));
    }
    StorePack(dx + i, dxs);
  }
};

}  // namespace

// Both kernels are bound by memory.
void SquaredReluForward(Exec& exec, const SquaredReluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const SquaredReluForwardBody<T> body = {args.x.as<T>(), args.y.as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.x, body.y), body);
  });
}

void SquaredReluBackward(Exec& exec, const SquaredReluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const SquaredReluBackwardBody<T> body = {args.dy.as<T>(), args.x.as<T>(), args.dx.as<T>()};
    const int64_t count = args.x.elements();
    ForEachPack<T>(exec, count, CanPack<T>(count, body.dy, body.x, body.dx), body);
  });
}

}  // namespace trainyard::cuda
