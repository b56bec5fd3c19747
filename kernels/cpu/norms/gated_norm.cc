#include "kernels/norms/gated_norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Forward(const Exec& exec, const GatedNormForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back(), groups = args.groups, width = d / groups;
  const T *x_data = args.x.as<T>(), *z_data = args.z.as<T>(), *gain_data = args.gain.as<T>();
  T* const y_data = args.y.as<T>();
  A* const rstd = args.rstd.as<A>();
  const A eps = A(args.eps);
  ParallelRows(exec, args.x.shape.rows(), 2 * d, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin * groups; i < end * groups; ++i) {
      const T *x = x_data + i * width, *z = z_data + i * width;
      const T* gain = gain_data + i % groups * width;
      T* y = y_data + i * width;
      A squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < width; ++c) {
        const A h = A(x[c]) * (A(z[c]) * Sigmoid(A(z[c])));
        squares += h * h;
      }
      const A r = A(1) / std::sqrt(squares / A(width) + eps);
      rstd[i] = r;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const A h = A(x[c]) * (A(z[c]) * Sigmoid(A(z[c])));
        y[c] = T(h * r * A(gain[c]));
      }
    }
  });
}

template <typename T>
void Backward(Exec& exec, const GatedNormBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back(), groups = args.groups, width = d / groups;
  const T *x_data = args.x.as<T>(), *z_data = args.z.as<T>(), *gain_data = args.gain.as<T>();
  const T* const dy_data = args.dy.as<T>();
  T *const dx_data = args.dx.as<T>(), *const dz_data = args.dz.as<T>();
  const A* const rstd = args.rstd.as<A>();
  const auto rows = [=](int64_t begin, int64_t end, std::array<A*, 1> sums) {
    for (int64_t i = begin * groups; i < end * groups; ++i) {
      const T *x = x_data + i * width, *z = z_data + i * width, *dy = dy_data + i * width;
      const T* gain = gain_data + i % groups * width;
      T *dx = dx_data + i * width, *dz = dz_data + i * width;
      A* dgain = sums[0] + i % groups * width;
      const A r = rstd[i];
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t c = 0; c < width; ++c) {
        const A h = A(x[c]) * (A(z[c]) * Sigmoid(A(z[c])));
        const A term = A(dy[c]) * h * r;
        dgain[c] += term;
        dot += term * A(gain[c]);
      }
      const A along = dot * r / A(width);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        // dx may be x, and dz may be z.
        const A at = x[c], by = z[c], s = Sigmoid(by), gate = by * s;
        const A dh = r * (A(dy[c]) * A(gain[c]) - at * gate * along);
        dx[c] = T(dh * gate);
        dz[c] = T(dh * at * s * (A(1) + by * (A(1) - s)));
      }
    }
  };
  SumRows<1, A>(exec, args.x.shape, {args.dgain.as<A>()}, args.write, rows);
}

}  // namespace

void GatedNormForward(Exec& exec, const GatedNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void GatedNormBackward(Exec& exec, const GatedNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
