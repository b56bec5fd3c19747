#include "kernels/elementwise/scaled_squared_relu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

int64_t CountOf(const ConstTensor& count, int64_t bound) {
  const int64_t rows = count.as<int32_t>()[0];
  CHECK(rows >= 0 && rows <= bound) << "scaled_squared_relu count: " << rows << " of " << bound;
  return rows;
}

// A value that is no number stays none.
template <typename A>
A Positive(A x) {
  return x < A(0) ? A(0) : x;
}

template <typename T>
void Forward(const Exec& exec, const ScaledSquaredReluForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.y.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  T* y = args.y.as<T>();
  ParallelRows(exec, CountOf(args.count, args.y.shape.rows()), f, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const A weight = w[r];
#pragma omp simd
      for (int64_t i = r * f; i < (r + 1) * f; ++i) {
        const A positive = Positive(A(x[i]));
        y[i] = T(weight * positive * positive);
      }
    }
  });
}

template <typename T>
void Backward(const Exec& exec, const ScaledSquaredReluBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t f = args.dy.shape.back();
  const T* x = args.x.as<T>();
  const A* w = args.w.as<A>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  A* dw = args.dw.as<A>();
  ParallelRows(exec, CountOf(args.count, args.dy.shape.rows()), 2 * f,
               [=](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) {
                   const A weight = w[r];
                   A along = 0;
#pragma omp simd reduction(+ : along)
                   for (int64_t i = r * f; i < (r + 1) * f; ++i) {
                     const A positive = Positive(A(x[i])), d = dy[i];
                     along += d * positive * positive;
                     dx[i] = T(A(2) * weight * d * positive);
                   }
                   dw[r] = along;
                 }
               });
}

}  // namespace

void ScaledSquaredReluForward(Exec& exec, const ScaledSquaredReluForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void ScaledSquaredReluBackward(Exec& exec, const ScaledSquaredReluBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
