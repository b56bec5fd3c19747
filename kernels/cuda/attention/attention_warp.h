// The building blocks of attention's kernels on the tensor cores: rows of bf16 in shared memory,
// and products in the registers of a warp. Each of a block's four warps owns 16 rows of a result.
// Bound by the rate of mma.sync, about 60% of that of wgmma. Sums are taken in f32. Weights are
// rounded to bf16 before they are multiplied. Source: Dao 2023, arXiv:2307.08691, section 3.

#pragma once

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/products/tensor_core.h"

namespace trainyard::cuda {

constexpr int kWarpRows = 16;
constexpr int kTensorWarps = 4, kTensorThreads = kTensorWarps * kWarp;
constexpr int kTensorRows = kTensorWarps * kWarpRows;  // Of a block.

// Runs the core on the tensor cores. False: they do not take it (TensorCoresTake), and nothing was
// run. Instantiated for O = bf16 and O = float.
template <typename O>
bool RunOnTensorCores(Exec& exec, const AttentionForwardCore<bf16, O>& core);
template <typename O>
bool RunOnTensorCores(Exec& exec, const AttentionBackwardCore<bf16, O>& core,
                      float* deltas);  // [sequences, heads, queries of the part]

// Rows of up to kDim elements in shared memory. A row has 16 bytes more than needed, so that the
// rows that a warp reads are in different banks.
template <int kDim>
struct SharedRows {
  static constexpr int kStride = kDim + 8;

  // Starts copying kRows rows. Elements that do not exist become zero.
  template <int kRows>
  __device__ static void Start(const HeadRows<const bf16>& from, bf16* to) {
    constexpr int kChunks = kDim / 8;
    for (int i = int(threadIdx.x); i < kRows * kChunks; i += kTensorThreads) {
      const int r = i / kChunks, c = i % kChunks * 8;
      const bool there = r < from.count && c < from.d;
      StartCopy(to + r * kStride + c, there ? from.data + r * from.row + c : from.data, there);
    }
  }
};

// A warp's sums [16, kColumns]. With g = lane / 4 and t = 2 (lane % 4), v[j] has row g, columns
// 8 j + t and 8 j + t + 1, and then the same columns of row g + 8.
template <int kColumns>
struct WarpSums {
  float v[kColumns / 8][4] = {};

  __device__ static int Row(int i) { return int(threadIdx.x) % kWarp / 4 + i / 2 * 8; }
  __device__ static int Column(int j, int i) { return 8 * j + int(threadIdx.x) % 4 * 2 + i % 2; }

  // Adds <a[r], b[c]> to the sum of row r and column c. The rows of a and b have `d` elements.
  template <int kDim>
  __device__ void AddDots(const bf16* a, const bf16* b, int d) {
    constexpr int kStride = SharedRows<kDim>::kStride;
    const int lane = int(threadIdx.x) % kWarp, row = lane % 8;
    const int first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    a += (row + first) * kStride + second;
    b += (row + second) * kStride + first;
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      if (k >= d) break;
      const Fragments left = LoadMatrices<false>(a + k);
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        const Fragments right = LoadMatrices<false>(b + j * 16 * kStride + k);
        MultiplyAdd(left, right.v, v[2 * j]);
        MultiplyAdd(left, right.v + 2, v[2 * j + 1]);
      }
    }
  }

  // Adds sum_n weights[r, n] rows[n, c] to the sum of row r and column c. The rows have `d`
  // elements.
  template <int kRows>
  __device__ void AddMix(const WarpSums<kRows>& weights, const bf16* rows, int d) {
    constexpr int kStride = SharedRows<kColumns>::kStride;
    const int lane = int(threadIdx.x) % kWarp;
    rows += lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) {
      const Fragments left = weights.Rounded(n);
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        if (j * 16 >= d) break;
        const Fragments right = LoadMatrices<true>(rows + n * 16 * kStride + j * 16);
        MultiplyAdd(left, right.v, v[2 * j]);
        MultiplyAdd(left, right.v + 2, v[2 * j + 1]);
      }
    }
  }

  // Columns [16 n, 16 n + 16), as the left operand of a product.
  __device__ Fragments Rounded(int n) const {
    const auto pair = [](const float* x) {
      return uint32_t{bf16(x[0]).bits} | uint32_t{bf16(x[1]).bits} << 16;
    };
    const float *left = v[2 * n], *right = v[2 * n + 1];
    return {{pair(left), pair(left + 2), pair(right), pair(right + 2)}};
  }

  // to[r, c] = or += the sum of row r and column c, times `factor`.
  template <typename O>
  __device__ void Store(float factor, Write write, const HeadRows<O>& to) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int r = Row(i);
      if (r >= to.count) continue;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const int c = Column(j, 0);
        if (c >= to.d) break;
        O* const place = to.data + r * to.row + c;
        Pack<O, 2> pack = {};
        if (write == Write::kAdd) pack = LoadPack<O, 2>(place);
        for (int k = 0; k < 2; ++k) pack.v[k] = O(float(pack.v[k]) + v[j][i + k] * factor);
        StoreRow(place, pack);
      }
    }
  }
};

// Reduces over the four lanes that share rows; each gets the result.
template <typename Op>
__device__ float QuadReduce(float x, Op op) {
  x = op(x, __shfl_xor_sync(kAllLanes, x, 1));
  return op(x, __shfl_xor_sync(kAllLanes, x, 2));
}

__device__ inline float Exp(float x) { return exp2f(x * 1.4426950408889634f); }

// The keys [begin, end) of a tile that a query sees.
struct SeenKeys {
  int begin, end;

  // Query r of the tile.
  __device__ SeenKeys(const Sight& sight, int r) : begin(0), end(0) {
    if (r >= sight.count) return;  // It does not exist, nor do its documents.
    end = sight.keys;
    Clip(r + sight.oldest + 1, sight.causal ? r + sight.diagonal + 1 : end);
    if (sight.begins != nullptr) Clip(sight.begins[r] - sight.position, end);
    if (sight.ends != nullptr) Clip(begin, sight.ends[r] - sight.position);
  }
  __device__ void Clip(int from, int to) {
    if (from > begin) begin = from;
    if (to < end) end = to;
  }
  __device__ bool operator()(int c) const { return c >= begin && c < end; }
};

}  // namespace trainyard::cuda
