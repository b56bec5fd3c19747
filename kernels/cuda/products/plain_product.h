// The product of two panels of any type that has the members kOrder, lines and Value of Panel, with
// values of Accumulate<T>, and of any shape. Steps of the reduction pass through shared
// memory, and sums stay in registers. Bound by shared memory, at about half of the chip's FMA rate.

#pragma once

#include "kernels/cuda/products/panel.h"

namespace trainyard::cuda {

template <typename T>
class PlainProduct {
  using A = Accumulate<T>;
  static constexpr int kDepth = 16;  // Steps of the reduction at a time.
  static constexpr int kEach = 4;    // Outputs of a thread, in both directions.

 public:
  static constexpr int kTile = 64;  // Outputs of a block, in both directions.
  static constexpr int kAcross = kTile / kEach, kThreads = kAcross * kAcross;
  static constexpr int kBlocks = 2;      // Per multiprocessor, at least.
  static constexpr int kNeighbours = 1;  // Columns that ForEachSum passes at a time.
  static constexpr size_t kShared = 2 * sizeof(A) * kDepth * (kTile + 16 / sizeof(A));

  // Sums over `depth` steps. All threads of a block must call it.
  template <typename PanelA, typename PanelB>
  __device__ PlainProduct(const PanelA& a, const PanelB& b, int64_t depth, std::byte* shared) {
    AddProduct(a, b, depth, shared);
  }

  // Adds the product of two more panels.
  template <typename PanelA, typename PanelB>
  __device__ void AddProduct(const PanelA& a, const PanelB& b, int64_t depth, std::byte* shared) {
    Stage& stage_a = reinterpret_cast<Stage*>(shared)[0];
    Stage& stage_b = reinterpret_cast<Stage*>(shared)[1];
    for (int64_t begin = 0; begin < depth; begin += kDepth) {
      Load(a, begin, depth, stage_a);
      Load(b, begin, depth, stage_b);
      __syncthreads();
#pragma unroll
      for (int step = 0; step < kDepth; ++step) {
        const A* from_a = &stage_a.v[step][threadIdx.x / kAcross * kEach];
        const A* from_b = &stage_b.v[step][threadIdx.x % kAcross * kEach];
        A left[kEach], right[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) left[i] = from_a[i], right[i] = from_b[i];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sums_[i][j] += left[i] * right[j];
        }
      }
      __syncthreads();  // Before the stages are written again.
    }
  }

  // Calls body(line of a, line of b, pack of sums) for each sum of this thread.
  template <typename Body>
  __device__ void ForEachSum(const Body& body) const {
    const int row = int(threadIdx.x) / kAcross * kEach, column = int(threadIdx.x) % kAcross * kEach;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) body(row + i, column + j, Pack<A, 1>{sums_[i][j]});
    }
  }

  // Calls body(line of a, line of b, pack of sums, pack of the other's sums) for each sum of this
  // thread.
  template <typename Body>
  __device__ void ForEachSum(const PlainProduct& other, const Body& body) const {
    const int row = int(threadIdx.x) / kAcross * kEach, column = int(threadIdx.x) % kAcross * kEach;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        body(row + i, column + j, Pack<A, 1>{sums_[i][j]}, Pack<A, 1>{other.sums_[i][j]});
      }
    }
  }

  // Replaces each sum by body(line of a, line of b, sum).
  template <typename Body>
  __device__ void Transform(const Body& body) {
    const int row = int(threadIdx.x) / kAcross * kEach, column = int(threadIdx.x) % kAcross * kEach;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) sums_[i][j] = body(row + i, column + j, sums_[i][j]);
    }
  }

 private:
  struct Stage {
    A v[kDepth][kTile + 16 / sizeof(A)];  // The panel, transposed.
  };

  // Loads steps [depth, depth + kDepth) of `end`; zeroes beyond the steps and the lines.
  template <typename PanelOf>
  __device__ static void Load(const PanelOf& panel, int64_t depth, int64_t end, Stage& stage) {
    constexpr Order kOrder = PanelOf::kOrder;
#pragma unroll
    for (int n = 0; n < kTile * kDepth / kThreads; ++n) {
      const int i = int(threadIdx.x) + n * kThreads;
      const int line = kOrder == Order::kDeep ? i / kDepth : i % kTile;
      const int step = kOrder == Order::kDeep ? i % kDepth : i / kTile;
      const bool inside = line < panel.lines && depth + step < end;
      stage.v[step][line] = inside ? panel.Value(line, depth + step) : A(0);
    }
  }

  A sums_[kEach][kEach] = {};
};

}  // namespace trainyard::cuda
