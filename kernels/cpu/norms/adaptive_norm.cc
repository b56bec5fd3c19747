#include "kernels/norms/adaptive_norm.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/samples.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Forward(const Exec& exec, const AdaptiveNormForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back();
  const T* const x_data = args.x.as<T>();
  const T* const shifts = args.shift.as<T>();
  const T* const scales = args.scale.as<T>();
  T* const y_data = args.y.as<T>();
  A* const mean = args.mean.as<A>();
  A* const rstd = args.rstd.as<A>();
  const A eps = A(args.eps);
  const SampleRows rows = args.rows;
  ParallelRows(exec, args.x.shape.rows(), d, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t sample = rows.sample_of(t) * d;
      const T* x = x_data + t * d;
      const T* shift = shifts + sample;
      const T* scale = scales + sample;
      T* y = y_data + t * d;
      A sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < d; ++i) sum += A(x[i]);
      const A m = sum / A(d);
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < d; ++i) squares += (A(x[i]) - m) * (A(x[i]) - m);
      const A r = A(1) / std::sqrt(squares / A(d) + eps);
      mean[t] = m;
      rstd[t] = r;
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        y[i] = T((A(x[i]) - m) * r * (A(1) + A(scale[i])) + A(shift[i]));
      }
    }
  });
}

template <typename T>
void Backward(Exec& exec, const AdaptiveNormBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back();
  const T* const x_data = args.x.as<T>();
  const T* const dy_data = args.dy.as<T>();
  const T* const scales = args.scale.as<T>();
  const A* const mean = args.mean.as<A>();
  const A* const rstd = args.rstd.as<A>();
  T* const dx_data = args.dx.as<T>();
  const auto rows = [=](int64_t begin, int64_t end, int64_t sample, std::array<A*, 2> sums) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * d;
      const T* dy = dy_data + t * d;
      const T* scale = scales + sample * d;
      T* dx = dx_data + t * d;
      A* dshift = sums[0];
      A* dscale = sums[1];
      const A m = mean[t], r = rstd[t];
      A sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int64_t i = 0; i < d; ++i) {
        const A gain = A(1) + A(scale[i]), term = A(dy[i]) * (A(x[i]) - m) * r;
        dshift[i] += A(dy[i]);
        dscale[i] += term;
        sum += A(dy[i]) * gain;
        dot += term * gain;
      }
      sum /= A(d);
      dot /= A(d);
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        const A g = A(dy[i]) * (A(1) + A(scale[i]));
        dx[i] = T(r * (g - sum - (A(x[i]) - m) * r * dot));
      }
    }
  };
  SumSamples<2, A>(exec, args.x.shape, args.rows, {args.dshift, args.dscale}, rows);
}

}  // namespace

void AdaptiveNormForward(Exec& exec, const AdaptiveNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void AdaptiveNormBackward(Exec& exec, const AdaptiveNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
