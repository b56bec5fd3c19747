// The product of two panels of bf16 on the tensor cores. Strides must be multiples of 8 elements,
// and data must be aligned to 16 bytes. Panels are copied asynchronously, two steps ahead. Bound by
// the rate of mma.sync, about 60% of that of wgmma.

#pragma once

#include "kernels/cuda/products/panel.h"
#include "kernels/cuda/products/tensor_core.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

class TensorProduct {
  static constexpr int kDepth = 32;                // Steps of the reduction at a time.
  static constexpr int kStages = 3;                // In shared memory.
  static constexpr int kRows = 64, kColumns = 32;  // A warp's part of the tile.
  static constexpr int kChunk = 8;                 // Elements of a 16-byte chunk.

 public:
  static constexpr int kTile = 128;  // Outputs of a block, in both directions.
  static constexpr int kWarpsAcross = kTile / kColumns;
  static constexpr int kThreads = kTile / kRows * kWarpsAcross * kWarp;
  static constexpr int kBlocks = 2;      // Per multiprocessor.
  static constexpr int kNeighbours = 2;  // Columns that ForEachSum passes at a time.

 private:
  // A row has 16 bytes more than needed, so that the rows that a warp reads are in different banks.
  template <Order kOrder>
  static constexpr int kRowOf = (kOrder == Order::kDeep ? kDepth : kTile) + kChunk;
  static constexpr int kStage = kTile * kRowOf<Order::kDeep>;  // The larger of the two.
  static_assert(kStage >= kDepth * kRowOf<Order::kAlong>);

 public:
  static constexpr size_t kShared = size_t{2} * kStages * kStage * sizeof(bf16);

  // Sums over `depth` steps. All threads of a block must call it.
  template <Order kOrderA, Order kOrderB>
  __device__ TensorProduct(const Panel<bf16, kOrderA>& a, const Panel<bf16, kOrderB>& b,
                           int64_t depth, std::byte* shared) {
    AddProduct(a, b, depth, shared);
  }

  // Adds the product of two more panels.
  template <Order kOrderA, Order kOrderB>
  __device__ void AddProduct(const Panel<bf16, kOrderA>& a, const Panel<bf16, kOrderB>& b,
                             int64_t depth, std::byte* shared) {
    bf16* const stages_a = reinterpret_cast<bf16*>(shared);
    bf16* const stages_b = stages_a + kStages * kStage;
    const int64_t steps = (depth + kDepth - 1) / kDepth;
    const auto start = [&](int64_t step) {
      const int stage = int(step % kStages) * kStage;
      if (step < steps) {
        Start(a, step * kDepth, depth, stages_a + stage);
        Start(b, step * kDepth, depth, stages_b + stage);
      }
      EndCopies();  // Empty if there is no such step, because groups are counted.
    };
    for (int step = 0; step < kStages - 1; ++step) start(step);
    for (int64_t step = 0; step < steps; ++step) {
      AwaitCopies<kStages - 2>();
      __syncthreads();  // All have this step's copies, and none reads the last step's any more.
      start(step + kStages - 1);
      const int stage = int(step % kStages) * kStage;
#pragma unroll
      for (int k = 0; k < kDepth; k += 16) {
        Add<kOrderA, kOrderB>(stages_a + stage, stages_b + stage, k);
      }
    }
    __syncthreads();  // Before the next product's copies.
  }

  // Calls body(line of a, line of b, pack of sums) for each sum of this thread.
  template <typename Body>
  __device__ void ForEachSum(const Body& body) const {
    const int lane = int(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const int row = Row() + i * 16 + lane / 4, column = Column() + j * 8 + lane % 4 * 2;
        body(row, column, Pack<float, 2>{sums_[i][j][0], sums_[i][j][1]});
        body(row + 8, column, Pack<float, 2>{sums_[i][j][2], sums_[i][j][3]});
      }
    }
  }

  // Calls body(line of a, line of b, pack of sums, pack of the other's sums) for each sum of this
  // thread.
  template <typename Body>
  __device__ void ForEachSum(const TensorProduct& other, const Body& body) const {
    const int lane = int(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
          const int row = Row() + i * 16 + lane / 4 + n / 2 * 8;
          const int column = Column() + j * 8 + lane % 4 * 2;
          body(row, column, Pack<float, 2>{sums_[i][j][n], sums_[i][j][n + 1]},
               Pack<float, 2>{other.sums_[i][j][n], other.sums_[i][j][n + 1]});
        }
      }
    }
  }

  // Replaces each sum by body(line of a, line of b, sum).
  template <typename Body>
  __device__ void Transform(const Body& body) {
    const int lane = int(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int row = Row() + i * 16 + lane / 4 + n / 2 * 8;
          const int column = Column() + j * 8 + lane % 4 * 2 + n % 2;
          sums_[i][j][n] = body(row, column, sums_[i][j][n]);
        }
      }
    }
  }

 private:
  // The first row and column of this warp's part of the tile.
  __device__ static int Row() { return int(threadIdx.x) / kWarp / kWarpsAcross * kRows; }
  __device__ static int Column() { return int(threadIdx.x) / kWarp % kWarpsAcross * kColumns; }

  // Starts copying steps [depth, depth + kDepth) of `end`, in the panel's order.
  template <Order kOrder>
  __device__ static void Start(const Panel<bf16, kOrder>& panel, int64_t depth, int64_t end,
                               bf16* stage) {
    constexpr int kChunks = (kOrder == Order::kDeep ? kDepth : kTile) / kChunk;  // Per row.
#pragma unroll
    for (int n = 0; n < kTile * kDepth / kChunk / kThreads; ++n) {
      const int i = int(threadIdx.x) + n * kThreads;
      const int row = i / kChunks, column = i % kChunks * kChunk;
      const int line = kOrder == Order::kDeep ? row : column;
      const int64_t step = depth + (kOrder == Order::kDeep ? column : row);
      const bool inside = line < panel.lines && step < end;
      StartCopy(stage + row * kRowOf<kOrder> + column, inside ? panel.At(line, step) : panel.data,
                inside);
    }
  }

  // A 16x16 part of a panel, at `line` and `step` of its stage, as one operand a or two operands b.
  template <Order kOrder>
  __device__ static Fragments Part(const bf16* stage, int line, int step) {
    constexpr bool kDeep = kOrder == Order::kDeep;
    return LoadMatrices<!kDeep>(stage + (kDeep ? line : step) * kRowOf<kOrder> +
                                (kDeep ? step : line));
  }

  // Adds 16 steps of the reduction, from `k` of this stage on.
  template <Order kOrderA, Order kOrderB>
  __device__ void Add(const bf16* stage_a, const bf16* stage_b, int k) {
    // This lane passes the address of row lane % 8 of matrix lane / 8. Matrices of a follow one
    // another first along its lines, and those of b along the steps.
    const int lane = int(threadIdx.x) % kWarp, row = lane % 8;
    const int first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    constexpr bool kDeepA = kOrderA == Order::kDeep, kDeepB = kOrderB == Order::kDeep;
    const int line_a = Row() + first + (kDeepA ? row : 0);
    const int step_a = k + second + (kDeepA ? 0 : row);
    const int line_b = Column() + second + (kDeepB ? row : 0);
    const int step_b = k + first + (kDeepB ? 0 : row);
    Fragments b[kColumns / 16];
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) b[j] = Part<kOrderB>(stage_b, line_b + j * 16, step_b);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const Fragments a = Part<kOrderA>(stage_a, line_a + i * 16, step_a);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) MultiplyAdd(a, b[j / 2].v + j % 2 * 2, sums_[i][j]);
    }
  }

  float sums_[kRows / 16][kColumns / 8][4] = {};
};

}  // namespace trainyard::cuda
