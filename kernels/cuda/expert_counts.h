// How often each expert is chosen, tile of slots by tile of slots: what sorting slots by expert and
// balancing experts begin with.

#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

constexpr int kTileSlots = 4096, kTileWarps = 8, kTileThreads = kTileWarps * kWarp;
constexpr int kTileRuns = kTileSlots / kTileThreads;  // Of 32 slots, for each warp.

// The experts of the slots of this block's warp that are this lane's: run i has those from
// FirstSlot() + 32 i on. -1 beyond `slots`.
__device__ inline int64_t FirstSlot() {
  return int64_t(blockIdx.x) * kTileSlots + threadIdx.x / kWarp * (kTileRuns * kWarp);
}
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

// Who counts: named where an expert is outside of [0, experts).
enum class CountedFor : uint8_t { kBalanceBias, kExpertOrder, kLoadBalance };

// Enqueues the counting into the stream's scratch memory. Up to 12288 experts.
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

// Enqueues body(expert, its count over all tiles) for each, and makes of each count the sum of
// those of earlier tiles.
template <typename Body>
void ScanTiles(Exec& exec, const TileCounts& tiles, const Body& body) {
  Launch(exec, {CeilDiv(tiles.experts, kTileWarps), kTileThreads}, ScanTilesKernel<Body>, tiles,
         body);
}

}  // namespace trainyard::cuda
