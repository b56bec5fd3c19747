// Sums over rows, column by column, with the same bits every time, for the gradients of gains and
// biases. A kernel that reads the rows writes the sums of runs of rows to scratch memory; AddRuns
// adds these sums.

#pragma once

#include "kernels/cuda/launch.h"

namespace trainyard::cuda {

// A matrix whose rows are divided into runs of `length` rows; the last run may be shorter.
struct RowRuns {
  int64_t rows;
  int64_t columns;
  int64_t length;

  int64_t runs() const { return CeilDiv(rows, length); }
};

// Divides rows into at most `most` runs of equal length.
inline RowRuns InRuns(int64_t rows, int64_t columns, int64_t most) {
  return {rows, columns, CeilDiv(rows, std::min(rows, most))};
}

// Writes sums to several tensors that lie side by side: sum c goes to y[c / columns][c % columns].
template <typename A, int kTensors>
struct ColumnOutputs {
  A* y[kTensors];
  int64_t columns;
  Write write;

  __device__ void operator()(int64_t, int64_t c, A sum) const {
    A* to = y[0] + c;
    for (int i = 1; i < kTensors; ++i) {
      if (c >= i * columns) to = y[i] + (c - i * columns);
    }
    *to = (write == Write::kAdd ? *to : A(0)) + sum;
  }
};

constexpr int kColumnThreads = 256;

// A block takes `width` packs of columns of a run. Its threads form `slots` rows of `width`
// threads. Each thread sums every slots-th row, and the sums of the slots are added in order. Calls
// out(run, column, sum).
template <typename T, int kCount, typename Out>
__global__ void __launch_bounds__(kColumnThreads)
    ColumnsKernel(const T* x, RowRuns rows, int width, Out out) {
  using A = Accumulate<T>;
  __shared__ A of_slot[kColumnThreads * kCount];
  const int64_t tiles = CeilDiv(rows.columns, width * kCount);
  const int64_t run = blockIdx.x / tiles, tile = blockIdx.x % tiles * (width * kCount);
  const int slots = int(blockDim.x) / width, slot = int(threadIdx.x) / width;
  const int column = int(threadIdx.x) % width * kCount;
  if (slot < slots && tile + column < rows.columns) {
    const T* from = x + tile + column;
    const int64_t end = std::min(rows.rows, (run + 1) * rows.length);
    A sums[kCount] = {};
#pragma unroll 4
    for (int64_t r = run * rows.length + slot; r < end; r += slots) {
      const auto xs = LoadPack<T, kCount>(from + r * rows.columns);
      for (int n = 0; n < kCount; ++n) sums[n] += A(xs.v[n]);
    }
    for (int n = 0; n < kCount; ++n) of_slot[slot * width * kCount + column + n] = sums[n];
  }
  __syncthreads();
  for (int c = int(threadIdx.x); c < width * kCount; c += int(blockDim.x)) {
    if (tile + c >= rows.columns) break;
    A sum = 0;
    for (int s = 0; s < slots; ++s) sum += of_slot[s * width * kCount + c];
    out(run, tile + c, sum);
  }
}

// Calls out(run, column, sum) with the sum of each column over each run. Tiles have at most
// `most_width` packs: wide tiles read longer stretches, narrow ones have more threads for few rows.
template <typename T, typename Out>
void SumRuns(Exec& exec, const T* x, const RowRuns& rows, int most_width, const Out& out) {
  const bool packed = CanPack<T>(rows.columns, x);
  const int count = packed ? kPackOf<T> : 1;
  const int width = int(std::min<int64_t>(rows.columns / count, most_width));
  const int slots = int(std::min<int64_t>(rows.length, kColumnThreads / width));
  const auto kernel = packed ? ColumnsKernel<T, kPackOf<T>, Out> : ColumnsKernel<T, 1, Out>;
  const int64_t tiles = CeilDiv(rows.columns, width * count);
  Launch(exec, {tiles * rows.runs(), width * slots}, kernel, x, rows, width, out);
}

// Adds the sums that runs have left in `sums` [runs, kTensors * y.columns].
template <typename A, int kTensors>
void AddRuns(Exec& exec, const A* sums, int64_t runs, const ColumnOutputs<A, kTensors>& y) {
  constexpr int kWidth = 8;
  SumRuns(exec, sums, RowRuns{runs, kTensors * y.columns, runs}, kWidth, y);
}

}  // namespace trainyard::cuda
