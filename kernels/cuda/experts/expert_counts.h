// Counts how often each expert is chosen, for each tile of slots. Sorting slots by expert and
// balancing experts start with these counts.

#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

constexpr int kTileSlots = 4096, kTileWarps = 8, kTileThreads = kTileWarps * kWarp;
constexpr int kTileRuns = kTileSlots / kTileThreads;  // Runs of 32 slots, per warp.

// The first slot of this warp.
__device__ inline int64_t FirstSlot() {
  return int64_t(blockIdx.x) * kTileSlots + threadIdx.x / kWarp * (kTileRuns * kWarp);
}
// Loads the experts of this lane's slots: mine[i] is the expert of slot FirstSlot() + 32 i + lane,
// or -1 if this slot is beyond `slots`.
__device__ inline void LoadExperts(const int32_t* experts, int64_t slots,
                                   int32_t (&mine)[kTileRuns]) {
  const int64_t first = FirstSlot() + threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kTileRuns; ++i) {
    mine[i] = first + i * kWarp < slots ? experts[first + i * kWarp] : -1;
  }
}

struct TileCounts {
  int32_t* counts;  // [experts, tiles]
  int experts;
  int64_t tiles;
};

// The op for which experts are counted. The error for an expert outside [0, experts) names it.
enum class CountedFor : uint8_t { kBalanceBias, kExpertOrder, kLoadBalance };

// Enqueues the counting into the stream's scratch memory. Takes up to 12288 experts.
TileCounts CountTiles(Exec& exec, const ConstTensor& chosen, int64_t experts, CountedFor op);

template <typename Body>
__global__ void __launch_bounds__(kTileThreads) ScanTilesKernel(TileCounts tiles, Body body) {
  const int lane = int(threadIdx.x) % kWarp;
  const int expert = int(blockIdx.x) * kTileWarps + int(threadIdx.x) / kWarp;
  if (expert >= tiles.experts) return;
  int32_t* counts = tiles.counts + expert * tiles.tiles;
  int32_t before = 0;
  for (int64_t tile = lane; tile - lane < tiles.tiles; tile += kWarp) {
    const int32_t mine = tile < tiles.tiles ? counts[tile] : 0;
    const int32_t through = WarpScan(mine);
    if (tile < tiles.tiles) counts[tile] = before + through - mine;
    before += __shfl_sync(kAllLanes, through, kWarp - 1);
  }
  if (lane == 0) body(expert, before);
}

// Enqueues body(expert, count over all tiles) for each expert, and replaces each tile's count by
// the sum of the counts of earlier tiles.
template <typename Body>
void ScanTiles(Exec& exec, const TileCounts& tiles, const Body& body) {
  Launch(exec, {CeilDiv(tiles.experts, kTileWarps), kTileThreads}, ScanTilesKernel<Body>, tiles,
         body);
}

}  // namespace trainyard::cuda
