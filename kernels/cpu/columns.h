// Sums over rows, column by column, for the gradients of gains and biases.

#pragma once

#include <array>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// y[i][c] = (write == kAdd ? y[i][c] : 0) + sum over the rows of `shape`, for each output i.
// `body(begin, end, sums)` must add the terms of rows [begin, end) to sums[i][c]; other work on
// these rows finds them in the cache. Rows are summed in runs of fixed length, and the sums of the
// runs are added in order. So no sum depends on the number of threads, and long sums stay accurate.
template <int kOutputs, typename A, typename Body>
void SumRows(Exec& exec, const Shape& shape, std::array<A*, kOutputs> y, Write write,
             const Body& body) {
  constexpr int64_t kRun = 64;
  const int64_t rows = shape.rows(), columns = shape.back(), runs = (rows + kRun - 1) / kRun;
  const size_t bytes = size_t(runs * kOutputs * columns) * sizeof(A);
  A* partial = reinterpret_cast<A*>(ContextOf(exec).shared.Reserve(bytes));
  ParallelRows(exec, runs, kRun * columns,
               [&body, partial, rows, columns](int64_t first, int64_t last) {
                 for (int64_t run = first; run < last; ++run) {
                   std::array<A*, kOutputs> sums;
                   for (int i = 0; i < kOutputs; ++i)
                     sums[i] = partial + (run * kOutputs + i) * columns;
                   std::fill_n(sums[0], kOutputs * columns, A(0));
                   body(run * kRun, std::min(rows, (run + 1) * kRun), sums);
                 }
               });
  ParallelRanges(exec, columns, runs * kOutputs, 16, [=](int64_t begin, int64_t end) {
    for (int i = 0; i < kOutputs; ++i) {
      if (write == Write::kOverwrite) std::fill(y[i] + begin, y[i] + end, A(0));
      for (int64_t run = 0; run < runs; ++run) {
        const A* sums = partial + (run * kOutputs + i) * columns;
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) y[i][c] += sums[c];
      }
    }
  });
}

}  // namespace trainyard::cpu
