#include "kernels/scaled_swiglu.h"

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

template <typename T>
void Forward(const Exec& exec, const ScaledSwiGluForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.y.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  T* y = args.y.as<T>();
  const int64_t rows = CountOf(args.count, args.y.shape.rows());
  ParallelRows(exec, rows, f, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* gate = x + r * 2 * f;
      const T* up = gate + f;
      T* out = y + r * f;
      const A weight = w[r];
#pragma omp simd
      for (int64_t i = 0; i < f; ++i) {
        out[i] = T(weight * (A(gate[i]) * Sigmoid(A(gate[i])) * A(up[i])));
      }
    }
  });
}

template <typename T>
void Backward(const Exec& exec, const ScaledSwiGluBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.dy.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  A* dw = args.dw.as<A>();
  const int64_t rows = CountOf(args.count, args.dy.shape.rows());
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
        const A g = gate[i], u = up[i], d = dout[i], s = Sigmoid(g);
        along += d * g * s * u;
        dgate[i] = T(weight * d * u * s * (A(1) + g * (A(1) - s)));
        dup[i] = T(weight * d * g * s);
      }
      dw[r] = along;
    }
  });
}

}  // namespace

void ScaledSwiGluForward(Exec& exec, const ScaledSwiGluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void ScaledSwiGluBackward(Exec& exec, const ScaledSwiGluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
