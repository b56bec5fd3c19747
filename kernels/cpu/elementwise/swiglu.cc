#include "kernels/elementwise/swiglu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

template <typename A>
struct Gradient {
  A dg, du;
};

// What each activation makes of gate g and up u, and of the gradient d of the result.
struct SiluUnit {
  template <typename A>
  static A Value(A g, A u) {
    return g * Sigmoid(g) * u;
  }
  template <typename A>
  static Gradient<A> Backward(A d, A g, A u) {
    const A s = Sigmoid(g);
    return {d * u * s * (A(1) + g * (A(1) - s)), d * g * s};
  }
};
struct GeluUnit {
  template <typename A>
  static A Value(A g, A u) {
    return Gelu(g) * u;
  }
  template <typename A>
  static Gradient<A> Backward(A d, A g, A u) {
    return {d * u * GeluDerivative(g), d * Gelu(g)};
  }
};

template <typename Unit>
void Forward(const Exec& exec, const SwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t f = args.y.shape.back();
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    ParallelRows(exec, args.y.shape.rows(), f, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* gate = x + t * 2 * f;
        const T* up = gate + f;
        T* out = y + t * f;
#pragma omp simd
        for (int64_t i = 0; i < f; ++i) out[i] = T(Unit::Value(A(gate[i]), A(up[i])));
      }
    });
  });
}

template <typename Unit>
void Backward(const Exec& exec, const SwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const int64_t f = args.dy.shape.back();
    const T* x = args.x.as<T>();
    const T* dy = args.dy.as<T>();
    T* dx = args.dx.as<T>();
    ParallelRows(exec, args.dy.shape.rows(), 2 * f, [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* gate = x + t * 2 * f;
        const T* up = gate + f;
        T* dgate = dx + t * 2 * f;
        T* dup = dgate + f;
        const T* dout = dy + t * f;
#pragma omp simd
        for (int64_t i = 0; i < f; ++i) {
          const Gradient<A> of = Unit::Backward(A(dout[i]), A(gate[i]), A(up[i]));
          dgate[i] = T(of.dg);
          dup[i] = T(of.du);
        }
      }
    });
  });
}

}  // namespace

void SwiGluForward(Exec& exec, const SwiGluForwardArgs& args) {
  args.gate == GateActivation::kSilu ? Forward<SiluUnit>(exec, args)
                                     : Forward<GeluUnit>(exec, args);
}

void SwiGluBackward(Exec& exec, const SwiGluBackwardArgs& args) {
  args.gate == GateActivation::kSilu ? Backward<SiluUnit>(exec, args)
                                     : Backward<GeluUnit>(exec, args);
}

}  // namespace trainyard::cpu
