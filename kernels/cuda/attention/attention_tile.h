// The building blocks of attention's kernels: tiles of rows in shared memory, and products of tiles
// in registers. Bound by shared memory: two values read there give as many multiplications as a
// thread owns rows. Does not use tensor cores: this code is for the dtypes and shapes that no
// library has.
//
// The 256 threads of a block are 16 x 16. Thread (y, x) owns these elements of a result: rows
// y + 16 i and columns x + 16 j. So neighbouring threads read neighbouring values, and the 16
// threads that share rows are half a warp.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

constexpr int kSide = 16;
constexpr int kTileThreads = kSide * kSide;

__device__ inline int TileY() { return int(threadIdx.x) / kSide; }
__device__ inline int TileX() { return int(threadIdx.x) % kSide; }

// Rows of one head: `count` rows of `d` elements, `row` elements apart.
template <typename T>
struct HeadRows {
  T* data;
  int64_t row;
  int count, d;
};

// Tiles for head dims up to kDim. Four tiles fit in shared memory.
template <typename A, int kDim>
struct Tile {
  static constexpr int kRows = std::min(64, (32 << 10) / (kDim * int(sizeof(A))));
  static constexpr int kOwnRows = kRows / kSide;    // Per thread.
  static constexpr int kOwnColumns = kDim / kSide;  // Per thread, of the head dim.
  // One more than needed, so that rows begin in different banks.
  static constexpr int kStride = kDim + 1, kSquareStride = kRows + 1;
  static constexpr int kElements = kRows * kStride;      // [kRows, kDim]
  static constexpr int kSquare = kRows * kSquareStride;  // [kRows, kRows]: queries, keys

  using Scores = A[kOwnRows][kOwnRows];
  using Sums = A[kOwnRows][kOwnColumns];

  // to[r, c] = from[r, c], and zeroes outside.
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
  // tile, or all. The rows of the sums are the rows of the weights, or their columns if
  // kTransposed.
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

  // to[y + 16 i, x + 16 j] = or += sums[i][j] factor.
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

// Reduces over the threads of one y; each gets the result.
template <typename A, typename Op>
__device__ A RowReduce(A x, Op op) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    x = op(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}

// A tile of one head of one sequence, and the place of its rows.
struct TilePlace {
  int64_t sequence, head;
  int64_t first;  // Its first row, counted in the part.
  int count;

  // Tile n, of `rows` rows each, in the block's head. Block numbers count heads first, then
  // sequences.
  __device__ TilePlace(int64_t heads, int64_t sequences, int64_t n, int rows, int64_t all)
      : sequence(blockIdx.x / heads % sequences),
        head(blockIdx.x % heads),
        first(n * rows),
        count(int(all - first < rows ? all - first : rows)) {}
  // The index of a query's statistic in [sequences, heads, rows].
  __device__ int64_t Statistic(int64_t heads, int64_t rows, int64_t begin) const {
    return (sequence * heads + head) * rows + begin + first;
  }
};

// Keys or queries [begin, end) of the part.
struct Range {
  int64_t begin, end;

  __device__ void Clip(int64_t from, int64_t to) {
    if (from > begin) begin = from;
    if (to < end) end = to;
  }
};

// The keys of a part that its queries see: by the mask, and by the documents of one sequence.
struct PartSight {
  const AttentionPart& part;
  int64_t offset;         // Query i and key i + offset are at the same position.
  const int32_t* begins;  // From the part's first query on, or null.
  const int32_t* ends;

  __device__ PartSight(const AttentionPart& of, const Documents& documents, int64_t first_row)
      : part(of),
        offset(of.q_position - of.kv_position),
        begins(documents.begins == nullptr ? nullptr : documents.begins + first_row),
        ends(documents.ends == nullptr ? nullptr : documents.ends + first_row) {}

  // The range of keys that some of the queries [first, first + count) see.
  __device__ Range KeysOf(int64_t first, int64_t count) const {
    Range keys = {0, part.kv_rows};
    const int64_t last = first + count - 1;
    if (part.mask.causal) keys.Clip(0, last + offset + 1);
    if (part.mask.window > 0) keys.Clip(first + offset - part.mask.window + 1, part.kv_rows);
    // Documents follow one another, so the first and the last query decide.
    if (begins != nullptr) keys.Clip(begins[first] - part.kv_position, part.kv_rows);
    if (ends != nullptr) keys.Clip(0, ends[last] - part.kv_position);
    return keys;
  }
  // The range of queries that may see some of the keys [first, first + count), by the mask.
  __device__ Range QueriesOf(int64_t first, int64_t count) const {
    Range queries = {0, part.q_rows};
    const int64_t last = first + count - 1;
    if (part.mask.causal) queries.Clip(first - offset, part.q_rows);
    if (part.mask.window > 0) queries.Clip(0, last - offset + part.mask.window);
    return queries;
  }
};

// Whether query r of a tile sees key c of another. The tiles have `count` queries from `first` on,
// and the keys from `key` on.
struct Sight {
  int keys;      // Number of existing keys in the tile.
  int diagonal;  // The last key that query 0 sees, if causal.
  int oldest;    // The last key before the window of query 0.
  int position;  // Key 0's, in the sequence.
  int count;
  bool causal;
  const int32_t* begins;
  const int32_t* ends;

  __device__ Sight(const PartSight& of, int64_t first, int count_, int64_t key)
      : keys(int(of.part.kv_rows - key)),
        diagonal(int(first - key + of.offset)),
        oldest(of.part.mask.window > 0 ? int(diagonal - of.part.mask.window) : kNever),
        position(int(of.part.kv_position + key)),
        count(count_),
        causal(of.part.mask.causal),
        begins(of.begins == nullptr ? nullptr : of.begins + first),
        ends(of.ends == nullptr ? nullptr : of.ends + first) {}
  __device__ bool operator()(int r, int c) const {
    if (c >= keys || (causal && c > r + diagonal) || c <= r + oldest) return false;
    if (begins == nullptr && ends == nullptr) return true;
    return r < count && (begins == nullptr || position + c >= begins[r]) &&
           (ends == nullptr || position + c < ends[r]);
  }

 private:
  static constexpr int kNever = -(1 << 30);
};

// The dropout of the probabilities of a tile of queries and a tile of keys.
struct TileDropout {
  HeadDropout head;
  uint64_t first;  // The element of the tile's query 0 and key 0.

  // The tiles begin with these rows of the part.
  __device__ TileDropout(const HeadDropout& of, const AttentionPart& part, int64_t query,
                         int64_t key)
      : head(of), first(of.RowOf(part.q_position + query) + uint64_t(part.kv_position + key)) {}
  // What the probability of query r and key c is multiplied by.
  template <typename A>
  __device__ A Factor(int r, int c) const {
    if (!head.active()) return A(1);
    const uint64_t element = first + uint64_t(r) * head.sequence + uint64_t(c);
    return head.key.keeps(element) ? A(head.key.scale) : A(0);
  }
};

// Makes a score of the product of a query and a key. `slope` is the derivative of the result by the
// scaled product.
template <typename A>
struct ScoreOf {
  A scale;
  A cap;  // The soft cap; 0: none.

  __device__ A operator()(A product, A& slope) const {
    const A score = product * scale;
    slope = 1;
    if (cap == 0) return score;
    const A ratio = std::tanh(score / cap);
    slope = 1 - ratio * ratio;
    return cap * ratio;
  }
};

// Calls body with the smallest head dim, as a constant, for which there are tiles that fit keys and
// values.
template <typename Body>
void DispatchHeadDim(const AttentionDims& dims, const Body& body) {
  const int64_t head_dim = std::max(dims.head_dim, dims.value_dim);
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  if (head_dim <= 128) return body(std::integral_constant<int, 128>());
  body(std::integral_constant<int, 256>());
}

}  // namespace trainyard::cuda
