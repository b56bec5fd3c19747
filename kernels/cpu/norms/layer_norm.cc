#include "kernels/norms/layer_norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norms/residual.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Forward(const Exec& exec, const LayerNormForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back();
  const T* gain = args.gain.as<T>();
  const T* bias = args.bias.as<T>();
  A* mean = args.mean.as<A>();
  A* rstd = args.rstd.as<A>();
  const T* x_data = args.x.as<T>();
  T* y_data = args.y.as<T>();
  const Residual<T> residual(args.addend, args.sum);
  const A eps = A(args.eps), gain_offset = A(args.gain_offset);
  ParallelRows(exec, args.x.shape.rows(), d, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = residual.Row(x_data, t, d);
      T* y = y_data + t * d;
      const A offset = gain_offset;
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
      for (int64_t i = 0; i < d; ++i)
        y[i] = T((A(x[i]) - m) * r * (A(gain[i]) + offset) + A(bias[i]));
    }
  });
}

template <typename T>
void Backward(Exec& exec, const LayerNormBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t d = args.x.shape.back();
  const T* gain_data = args.gain.as<T>();
  const A* mean = args.mean.as<A>();
  const A* rstd = args.rstd.as<A>();
  const T* x_data = args.x.as<T>();
  const T* dy_data = args.dy.as<T>();
  T* dx_data = args.dx.as<T>();
  const T* dsum_data = DataOrNull<T>(args.dsum);
  const A gain_offset = A(args.gain_offset);
  const auto rows = [=](int64_t begin, int64_t end, std::array<A*, 2> sums) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * d;
      const T* dy = dy_data + t * d;
      T* dx = dx_data + t * d;
      const T* dsum = dsum_data == nullptr ? nullptr : dsum_data + t * d;
      const A offset = gain_offset;
      const T* gain = gain_data;  // A captured pointer would keep the sums below from vectorising.
      A* dgain = sums[0];
      A* dbias = sums[1];
      const A m = mean[t], r = rstd[t];
      A sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int64_t i = 0; i < d; ++i) {
        const A term = A(dy[i]) * (A(x[i]) - m) * r;
        dgain[i] += term;
        dbias[i] += A(dy[i]);
        sum += A(dy[i]) * (A(gain[i]) + offset);
        dot += term * (A(gain[i]) + offset);
      }
      sum /= A(d);
      dot /= A(d);
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        const A other = dsum != nullptr ? A(dsum[i]) : A(0);
        dx[i] = T(r * (A(dy[i]) * (A(gain[i]) + offset) - sum - (A(x[i]) - m) * r * dot) + other);
      }
    }
  };
  SumRows<2, A>(exec, args.x.shape, {args.dgain.as<A>(), args.dbias.as<A>()}, args.write, rows);
}

}  // namespace

void LayerNormForward(Exec& exec, const LayerNormForwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void LayerNormBackward(Exec& exec, const LayerNormBackwardArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
