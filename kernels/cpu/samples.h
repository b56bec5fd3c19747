// Sums over the rows of each sample, column by column. The gradients of shifts, scales and gates of
// samples are such sums.

#pragma once

#include <array>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device/sample_rows.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// Writes to y[i][s, c] a sum over the rows of sample s. Each output y[i] is [samples, columns].
// `body(begin, end, s, sums)` must add the terms of rows [begin, end), which all belong to sample
// s, to sums[i][c]. SumSamples calls `body` on several threads, for runs of rows of a fixed length,
// and adds the sums of the runs in order. So no sum depends on the number of threads.
template <int kOutputs, typename A, typename Body>
void SumSamples(Exec& exec, const Shape& shape, const SampleRows& of,
                const std::array<Tensor, kOutputs>& y, const Body& body) {
  constexpr int64_t kRun = 64;
  const int64_t rows = shape.rows(), columns = shape.back(), samples = y[0].shape.rows();
  // Runs of each sample. Runs behind the sample's rows in the matrix are empty.
  const int64_t runs = (of.per_sample + kRun - 1) / kRun;
  const size_t bytes = size_t(samples * runs * kOutputs * columns) * sizeof(A);
  A* const partial = reinterpret_cast<A*>(ContextOf(exec).shared.Reserve(bytes));
  ParallelRows(exec, samples * runs, kRun * columns, [=, &body](int64_t first, int64_t last) {
    for (int64_t run = first; run < last; ++run) {
      std::array<A*, kOutputs> sums;
      for (int i = 0; i < kOutputs; ++i) sums[i] = partial + (run * kOutputs + i) * columns;
      std::fill_n(sums[0], kOutputs * columns, A(0));
      const int64_t sample = run / runs, end = of.begin_of(sample + 1, rows);
      const int64_t begin = of.begin_of(sample, rows) + run % runs * kRun;
      if (begin < end) body(begin, std::min(end, begin + kRun), sample, sums);
    }
  });
  DispatchFloat(y[0].dtype, [&](auto scalar) {
    using T = decltype(scalar);
    ParallelRows(exec, samples, kOutputs * runs * columns, [=, &y](int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s) {
        for (int i = 0; i < kOutputs; ++i) {
          A* const sum = partial + (s * runs * kOutputs + i) * columns;
          for (int64_t run = 1; run < runs; ++run) {
            const A* const more = sum + run * kOutputs * columns;
#pragma omp simd
            for (int64_t c = 0; c < columns; ++c) sum[c] += more[c];
          }
          T* const to = y[i].template as<T>() + s * columns;
#pragma omp simd
          for (int64_t c = 0; c < columns; ++c) to[c] = T(sum[c]);
        }
      }
    });
  });
}

}  // namespace trainyard::cpu
