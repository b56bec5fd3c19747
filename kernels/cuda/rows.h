// Loops over the rows of matrices.

#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

// The number of blocks of a grid in which each row has a block, up to a number that balances the
// load; loops stride by the grid.
constexpr int64_t RowBlocks(int64_t rows) { return std::min(rows, kMultiprocessors * 64); }

// The number of threads of a block that shares a row of `packs` packs: whole warps, and no idle
// ones.
constexpr int RowThreads(int64_t packs, int most) {
  return int(std::min<int64_t>(CeilDiv(packs, kWarp) * kWarp, most));
}

template <int kCount, typename Body>
__global__ void __launch_bounds__(256) RowsKernel(int64_t rows, int64_t columns, Body body) {
  const int64_t stride = int64_t(blockDim.x) * kCount;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t column = int64_t(threadIdx.x) * kCount; column < columns; column += stride) {
      body.template operator()<kCount>(row, column);
    }
  }
}

// Calls body.template operator()<n>(row, column) for columns [column, column + n) of each row. n is
// as in ForEachPack, but needs no division to find row and column.
template <typename T, typename Body>
void ForEachPackOfRows(Exec& exec, int64_t rows, int64_t columns, bool packed, const Body& body) {
  constexpr int kCount = kPackOf<T>;
  if (columns == 0) return;
  const bool whole = packed && columns % kCount == 0;
  const Grid grid = {RowBlocks(rows), RowThreads(whole ? columns / kCount : columns, 256)};
  if (whole) {
    Launch(exec, grid, RowsKernel<kCount, Body>, rows, columns, body);
  } else {
    Launch(exec, grid, RowsKernel<1, Body>, rows, columns, body);
  }
}

}  // namespace trainyard::cuda
