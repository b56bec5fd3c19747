#include "kernels/loss/mean_square.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

template <typename T>
void Compute(Exec& exec, const MeanSquareArgs& args) {
  using A = Accumulate<T>;
  const int64_t rows = args.x.shape.rows(), p = args.x.shape.back();
  const double factor = args.state->loss_scale / double(p);
  const A twice = A(2 * factor);
  const T* const x_data = args.x.as<T>();
  const T* const targets = args.target.as<T>();
  T* const dx_data = args.dx.data == nullptr ? nullptr : args.dx.as<T>();
  double* const of_rows =
      reinterpret_cast<double*>(ContextOf(exec).shared.Reserve(size_t(rows) * sizeof(double)));
  ParallelRows(exec, rows, p, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* x = x_data + t * p;
      const T* target = targets + t * p;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < p; ++i) {
        const double difference = A(x[i]) - A(target[i]);
        sum += difference * difference;
      }
      of_rows[t] = sum;
      if (dx_data == nullptr) continue;
      T* dx = dx_data + t * p;
#pragma omp simd
      for (int64_t i = 0; i < p; ++i) dx[i] = T(twice * (A(x[i]) - A(target[i])));
    }
  });
  double loss = 0;
  for (int64_t t = 0; t < rows; ++t) loss += of_rows[t];
  args.state->loss += factor * loss;
}

}  // namespace

void MeanSquare(Exec& exec, const MeanSquareArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { Compute<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
