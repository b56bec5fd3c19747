#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/rows.h"
#include "kernels/elementwise/swiglu.h"

namespace trainyard::cuda {
namespace {

struct SiluUnit {
  template <typename A>
  static __device__ A Value(A g, A u) {
    return SwiGlu(g, u);
  }
  template <typename A>
  using Gradient = SwiGluGradient<A>;
};
struct GeluUnit {
  template <typename A>
  static __device__ A Value(A g, A u) {
    return GeGlu(g, u);
  }
  template <typename A>
  using Gradient = GeGluGradient<A>;
};

template <typename Unit, typename T>
struct ForwardBody {
  const T* x;
  T* y;
  int64_t f;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t i) const {
    using A = Accumulate<T>;
    const T* gate = x + t * 2 * f + i;
    const auto gates = LoadPack<T, kCount>(gate), ups = LoadPack<T, kCount>(gate + f);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) ys.v[n] = T(Unit::Value(A(gates.v[n]), A(ups.v[n])));
    StorePack(y + t * f + i, ys);
  }
};

template <typename Unit, typename T>
struct BackwardBody {
  const T* dy;
  const T* x;
  T* dx;
  int64_t f;

  template <int kCount>
  __device__ void operator()(int64_t t, int64_t i) const {
    using A = Accumulate<T>;
    const int64_t gate = t * 2 * f + i;
    const auto gates = LoadPack<T, kCount>(x + gate), ups = LoadPack<T, kCount>(x + gate + f);
    const auto dys = LoadPack<T, kCount>(dy + t * f + i);
    Pack<T, kCount> dgates, dups;
    for (int n = 0; n < kCount; ++n) {
      const typename Unit::template Gradient<A> of(A(dys.v[n]), A(gates.v[n]), A(ups.v[n]));
      dgates.v[n] = T(of.dg), dups.v[n] = T(of.du);
    }
    StorePack(dx + gate, dgates);
    StorePack(dx + gate + f, dups);
  }
};

template <typename Unit>
void Forward(Exec& exec, const SwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t f = args.y.shape.back();
    const ForwardBody<Unit, T> body = {args.x.as<T>(), args.y.as<T>(), f};
    ForEachPackOfRows<T>(exec, args.y.shape.rows(), f, CanPack<T>(f, body.x, body.y), body);
  });
}

template <typename Unit>
void Backward(Exec& exec, const SwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t f = args.dy.shape.back();
    const BackwardBody<Unit, T> body = {args.dy.as<T>(), args.x.as<T>(), args.dx.as<T>(), f};
    ForEachPackOfRows<T>(exec, args.dy.shape.rows(), f, CanPack<T>(f, body.dy, body.x, body.dx),
                         body);
  });
}

}  // namespace

// Forward and backward are bound by memory.
void SwiGluForward(Exec& exec, const SwiGluForwardArgs& args) {
  args.gate == GateActivation::kSilu ? Forward<SiluUnit>(exec, args)
                                     : Forward<GeluUnit>(exec, args);
}

void SwiGluBackward(Exec& exec, const SwiGluBackwardArgs& args) {
  args.gate == GateActivation::kSilu ? Backward<SiluUnit>(exec, args)
                                     : Backward<GeluUnit>(exec, args);
}

}  // namespace trainyard::cuda
