#include "kernels/elementwise/scaled_swiglu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

int64_t CountOf(const ConstTensor& count, int64_t bound) {
  const int64_t rows = count.as<int32_t>()[0];
  CHECK(rows >= 0 && rows <= bound) << "scaled_swiglu count: " << rows << " of " << bound;
  return rows;
}

// Gate, up and sigmoid of the clamped form.
template <typename A>
struct Clamped {
  A g, u, s;
  Clamped(A gate, A up, A limit)
      : g(gate > limit ? limit : gate),
        u(up > limit    ? limit
          : up < -limit ? -limit
                        : up),
        s(Sigmoid(A(kClampedSwiGluSlope) * g)) {}
  A value() const { return g * s * (u + A(1)); }
};

template <typename T, bool kClamped>
void Forward(const Exec& exec, const ScaledSwiGluForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.y.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  T* y = args.y.as<T>();
  const int64_t rows = CountOf(args.count, args.y.shape.rows());
  [[maybe_unused]] const A limit = A(args.limit);
  ParallelRows(exec, rows, f, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* gate = x + r * 2 * f;
      const T* up = gate + f;
      T* out = y + r * f;
      const A weight = w[r];
#pragma omp simd
      for (int64_t i = 0; i < f; ++i) {
        if constexpr (kClamped) {
          out[i] = T(weight * Clamped<A>(gate[i], up[i], limit).value());
        } else {
          out[i] = T(weight * (A(gate[i]) * Sigmoid(A(gate[i])) * A(up[i])));
        }
      }
    }
  });
}

template <typename T, bool kClamped>
void Backward(const Exec& exec, const ScaledSwiGluBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.dy.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  A* dw = args.dw.as<A>();
  const int64_t rows = CountOf(args.count, args.dy.shape.rows());
  [[maybe_unused]] const A limit = A(args.limit);
  ParallelRows(exec, rows, 2 * f, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* gate = x + r * 2 * f;
      const T* up = gate + f;
      const T* dout = dy + r * f;
      T* dgate = dx + r * 2 * f;
      T* dup = dgate + f;
      const A weight = w[r];
      A along = 0;
#pragma omp simd reduction(+ : along)
      for (int64_t i = 0; i < f; ++i) {
        if constexpr (kClamped) {
          const A x_gate = gate[i], x_up = up[i], d = dout[i];
          const Clamped<A> at(x_gate, x_up, limit);
          const A slope = at.s * (A(1) + A(kClampedSwiGluSlope) * at.g * (A(1) - at.s));
          along += d * at.value();
          dgate[i] = T(x_gate > limit ? A(0) : weight * d * (at.u + A(1)) * slope);
          dup[i] = T(x_up > limit || x_up < -limit ? A(0) : weight * d * at.g * at.s);
        } else {
          const A g = gate[i], u = up[i], d = dout[i], s = Sigmoid(g);
          along += d * g * s * u;
          dgate[i] = T(weight * d * u * s * (A(1) + g * (A(1) - s)));
          dup[i] = T(weight * d * g * s);
        }
      }
      dw[r] = along;
    }
  });
}

}  // namespace

void ScaledSwiGluForward(Exec& exec, const ScaledSwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    args.limit > 0 ? Forward<T, true>(exec, args) : Forward<T, false>(exec, args);
  });
}

void ScaledSwiGluBackward(Exec& exec, const ScaledSwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    args.limit > 0 ? Backward<T, true>(exec, args) : Backward<T, false>(exec, args);
  });
}

}  // namespace trainyard::cpu
