// Sums over rows, column by column: gradients of gains and biases.

#pragma once

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// y[c] = (write == kAdd ? y[c] : 0) + sum over rows t of term(t, c), for each of the Terms outputs.
// `term(t, c, sums)` adds to sums[i]. Threads share out blocks of columns, and rows are added in
// order within runs that are then added up, so no sum depends on the threads and long ones stay
// accurate.
template <int kOutputs, typename A, typename Term>
void SumRows(const Exec& exec, int64_t rows, int64_t columns, std::array<A*, kOutputs> y,
             Write write, Term&& term) {
  constexpr int64_t kBlock = 128, kRun = 128;
  const auto block = [&](int64_t begin, int64_t end) {
    A total[kOutputs][kBlock] = {};
    for (int64_t run = 0; run < rows; run += kRun) {
      A sums[kOutputs][kBlock] = {};
      for (int64_t t = run; t < std::min(rows, run + kRun); ++t) {
        const auto row = term(t);
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) {
          const std::array<A, kOutputs> values = row(c);
          for (int i = 0; i < kOutputs; ++i) sums[i][c - begin] += values[i];
        }
      }
      for (int i = 0; i < kOutputs; ++i) {
        for (int64_t c = 0; c < end - begin; ++c) total[i][c] += sums[i][c];
      }
    }
    for (int i = 0; i < kOutputs; ++i) {
      for (int64_t c = begin; c < end; ++c) {
        y[i][c] = (write == Write::kAdd ? y[i][c] : A(0)) + total[i][c - begin];
      }
    }
  };
  ParallelRanges(exec, columns, rows, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kBlock) block(c, std::min(end, c + kBlock));
  });
}

}  // namespace trainyard::cpu
