#include "kernels/norms/head_norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Forward(const Exec& exec, const HeadNormForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t width = args.x.shape.back(), d = args.q_gain.elements(), heads = args.heads;
  const int64_t normed = args.heads + args.kv_heads;
  const T* gains[2] = {args.q_gain.as<T>(), args.k_gain.as<T>()};
  A* rstd = args.rstd.as<A>();
  const T* x_data = args.x.as<T>();
  T* y_data = args.y.as<T>();
  const A eps = A(args.eps), gain_offset = A(args.gain_offset);
  ParallelRows(exec, args.x.shape.rows(), width, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * width;
      T* y = y_data + t * width;
      for (int64_t h = 0; h < normed; ++h, x += d, y += d) {
        const T* gain = gains[h < heads ? 0 : 1];
        const A offset = gain_offset;
        A squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < d; ++i) squares += A(x[i]) * A(x[i]);
        const A r = A(1) / std::sqrt(squares / A(d) + eps);
        rstd[t * normed + h] = r;
#pragma omp simd
        for (int64_t i = 0; i < d; ++i) y[i] = T(A(x[i]) * r * (A(gain[i]) + offset));
      }
      if (x != y) std::copy_n(x, width - normed * d, y);
    }
  });
}

template <typename T>
void Backward(Exec& exec, const HeadNormBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t width = args.x.shape.back(), d = args.q_gain.elements(), heads = args.heads;
  const int64_t normed = args.heads + args.kv_heads;
  const T* gains[2] = {args.q_gain.as<T>(), args.k_gain.as<T>()};
  const A* rstd = args.rstd.as<A>();
  const T* x_data = args.x.as<T>();
  const T* dy_data = args.dy.as<T>();
  T* dx_data = args.dx.as<T>();
  const A gain_offset = A(args.gain_offset);
  const auto rows = [=](int64_t begin, int64_t end, std::array<A*, 2> sums) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * width;
      const T* dy = dy_data + t * width;
      T* dx = dx_data + t * width;
      for (int64_t h = 0; h < normed; ++h, x += d, dy += d, dx += d) {
        const T* gain = gains[h < heads ? 0 : 1];
        const A offset = gain_offset;
        A* dgain = sums[h < heads ? 0 : 1];
        const A r = rstd[t * normed + h];
        A dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < d; ++i) {
          const A term = A(dy[i]) * A(x[i]) * r;
          dgain[i] += term;
          dot += term * (A(gain[i]) + offset);
        }
        const A along = dot * r / A(d);
#pragma omp simd
        for (int64_t i = 0; i < d; ++i)
          dx[i] = T(r * (A(dy[i]) * (A(gain[i]) + offset) - A(x[i]) * along));
      }
      if (dy != dx) std::copy_n(dy, width - normed * d, dx);
    }
  };
  SumRows<2, A>(exec, {args.x.shape.rows(), d}, {args.dq_gain.as<A>(), args.dk_gain.as<A>()},
                args.write, rows);
}

}  // namespace

void HeadNormForward(Exec& exec, const HeadNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
  if (args.cos.data != nullptr) Rope(exec, RotationOf(args, args.y, args.y, /*inverse=*/false));
}

void HeadNormBackward(Exec& exec, const HeadNormBackwardArgs& args) {
  HeadNormBackwardArgs of_norm = args;
  if (args.cos.data != nullptr) {
    Rope(exec, RotationOf(args, args.dy, args.dx, /*inverse=*/true));
    of_norm.dy = args.dx;
  }
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, of_norm); });
}

}  // namespace trainyard::cpu
