// Sums over rows, column by column: gradients of gains and biases.

#pragma once

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// y[c] = (write == kAdd ? y[c] : 0) + sum over the rows t of `shape`, for each of the outputs.
// `add(t, begin, count, sums)` adds row t's columns from `begin` on to sums[output][0 .. count).
// Threads share out blocks of columns, and rows are added in order within runs that are then added
// up, so no sum depends on the threads and long ones stay accurate.
template <int kOutputs, typename A, typename Add>
void SumRows(const Exec& exec, const Shape& shape, std::array<A*, kOutputs> y, Write write,
             const Add& add) {
  const int64_t rows = shape.rows(), columns = shape.back();
  constexpr int64_t kBlock = 1024, kRun = 128;  // A block's sums fit in the first-level cache.
  const auto block = [&](int64_t begin, int64_t count) {
    A total[kOutputs][kBlock] = {};
    for (int64_t run = 0; run < rows; run += kRun) {
      A sums[kOutputs][kBlock] = {};
      for (int64_t t = run; t < std::min(rows, run + kRun); ++t) add(t, begin, count, sums);
      for (int i = 0; i < kOutputs; ++i) {
        for (int64_t c = 0; c < count; ++c) total[i][c] += sums[i][c];
      }
    }
    for (int i = 0; i < kOutputs; ++i) {
      for (int64_t c = 0; c < count; ++c) {
        A& out = y[i][begin + c];
        out = (write == Write::kAdd ? out : A(0)) + total[i][c];
      }
    }
  };
  ParallelRanges(exec, columns, rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kBlock) block(c, std::min(kBlock, end - c));
  });
}

}  // namespace trainyard::cpu
