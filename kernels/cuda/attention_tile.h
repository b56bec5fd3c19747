// What attention's kernels are made of: tiles of rows in shared memory, products of them in
// registers. Bound by shared memory: every two values read there feed as many multiplications as a
// thread owns rows. No tensor cores: this is the kernel for dtypes and shapes that no library has.
//
// The 256 threads of a block are 16 x 16; thread (y, x) owns the rows y + 16 i and the columns
// x + 16 j of a result. So threads next to each other read neighbours, and the 16 threads that
// share rows are half a warp.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_core.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

constexpr int kSide = 16;
constexpr int kTileThreads = kSide * kSide;

__device__ inline int TileY() { return int(threadIdx.x) / kSide; }
__device__ inline int TileX() { return int(threadIdx.x) % kSide; }

// Rows of one head: `count` of `d` elements, `row` elements apart.
template <typename T>
struct HeadRows {
  T* data;
  int64_t row;
  int count, d;
};

// Tiles for head dims up to kDim, as many rows as let four of them lie in shared memory.
template <typename A, int kDim>
struct Tile {
  static constexpr int kRows = std::min(64, (32 << 10) / (kDim * int(sizeof(A))));
  static constexpr int kOwnRows = kRows / kSide;    // Of a thread.
  static constexpr int kOwnColumns = kDim / kSide;  // Likewise, of a head dim.
  // One more than needed, so that rows begin in different banks.
  static constexpr int kStride = kDim + 1, kSquareStride = kRows + 1;
  static constexpr int kElements = kRows * kStride;      // [kRows, kDim]
  static constexpr int kSquare = kRows * kSquareStride;  // [kRows, kRows]: queries, keys

  using Scores = A[kOwnRows][kOwnRows];
  using Sums = A[kOwnRows][kOwnColumns];

  // to[r, c] = from[r, c]; zeroes beyond.
  template <typename T>
  __device__ static void Load(const HeadRows<const T>& from, A* to) {
    for (int i = int(threadIdx.x); i < kRows * kDim; i += kTileThreads) {
      const int r = i / kDim, c = i % kDim;
      const bool there = r < from.count && c < from.d;
      to[r * kStride + c] = there ? A(from.data[r * from.row + c]) : A(0);
    }
  }

  // to[i][j] = <a[y + 16 i], b[x + 16 j]>
  __device__ static void Dots(const A* a, const A* b, int d, Scores& to) {
    a += TileY() * kStride;
    b += TileX() * kStride;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnRows; ++j) to[i][j] = 0;
    }
    for (int c = 0; c < d; ++c) {
      A ours[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) ours[i] = a[i * kSide * kStride + c];
#pragma unroll
      for (int j = 0; j < kOwnRows; ++j) {
        const A theirs = b[j * kSide * kStride + c];
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) to[i][j] += ours[i] * theirs;
      }
    }
  }

  // sums[i][j] += sum_n weight(y + 16 i, n) rows[n, x + 16 j], over the first `count` rows of the
  // tile, or all. The rows of the sums are those of the square of weights, or its columns.
  template <bool kTransposed>
  __device__ static void Mix(const A* weights, const A* rows, int count, Sums& sums) {
    constexpr int kRow = kTransposed ? 1 : kSquareStride, kNext = kTransposed ? kSquareStride : 1;
    weights += TileY() * kRow;
    rows += TileX();
    const int end = count < kRows ? count : kRows;
    for (int n = 0; n < end; ++n, weights += kNext, rows += kStride) {
      A ours[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) ours[i] = weights[i * kSide * kRow];
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        const A theirs = rows[j * kSide];
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) sums[i][j] += ours[i] * theirs;
      }
    }
  }

  // to[y + 16 i, x + 16 j] = sums[i][j] factor, or adds that.
  template <typename O>
  __device__ static void Store(const Sums& sums, A factor, Write write, const HeadRows<O>& to) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int r = TileY() + kSide * i;
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        const int c = TileX() + kSide * j;
        if (r >= to.count || c >= to.d) continue;
        O& value = to.data[r * to.row + c];
        const A before = write == Write::kAdd ? A(value) : A(0);
        value = O(before + sums[i][j] * factor);
      }
    }
  }
};

// Over the threads of one y, in each.
template <typename A, typename Op>
__device__ A RowReduce(A x, Op op) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    x = op(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}

// A tile of one head of one sequence, and where its rows lie.
struct TilePlace {
  int64_t sequence, head;
  int64_t first;  // Of the part's rows.
  int count;

  // The n-th tile, of `rows` rows each, of the block's head: blocks take heads, then sequences.
  __device__ TilePlace(int64_t heads, int64_t sequences, int64_t n, int rows, int64_t all)
      : sequence(blockIdx.x / heads % sequences),
        head(blockIdx.x % heads),
        first(n * rows),
        count(int(all - first < rows ? all - first : rows)) {}
  // Where a query's statistic is, of [sequences, heads, rows].
  __device__ int64_t Statistic(int64_t heads, int64_t rows, int64_t begin) const {
    return (sequence * heads + head) * rows + begin + first;
  }
};

// Of the tile of queries at `first` and that of keys at `key`: whether query r sees key c.
struct Sight {
  int keys;      // There are in the tile.
  int diagonal;  // The last key that query 0 sees, if it does not see all of them.
  bool causal;

  __device__ Sight(const AttentionPart& part, int64_t first, int64_t key)
      : keys(int(part.kv_rows - key)), diagonal(int(first - key)), causal(part.causal) {}
  __device__ bool operator()(int r, int c) const {
    return c < keys && (!causal || c <= r + diagonal);
  }
};

// Calls body(constant), a head dim that tiles are made for.
template <typename Body>
void DispatchHeadDim(int64_t head_dim, const Body& body) {
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 128) return body(std::integral_constant<int, 128>());
  body(std::integral_constant<int, 256>());
}

}  // namespace trainyard::cuda
