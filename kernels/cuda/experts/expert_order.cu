// A stable counting sort in three launches. The first counts the tiles. The second turns the counts
// into the places where each tile's slots of an expert begin. The third puts the slots there. Bound
// by the launches and by the scattered writes of `order`.
#include "kernels/cuda/experts/expert_counts.h"
#include "kernels/cuda/kernels.h"
#include "kernels/experts/expert_order.h"

namespace trainyard::cuda {
namespace {

// Bytes of shared memory for each expert: the place where its slots begin, and how many each warp
// has.
constexpr int kExpertBytes = sizeof(int32_t) + kTileWarps * sizeof(uint16_t);
constexpr int64_t kMostExperts = (47 << 10) / kExpertBytes;  // Of 48 KiB; BlockScan uses a part.

struct Sorted {
  const int32_t* counts;
  int32_t* order;
  int32_t* place;
  int32_t* offsets;  // Null: absent.
};

__global__ void __launch_bounds__(kTileThreads)
    PlaceKernel(const int32_t* experts, int64_t slots, TileCounts tiles, Sorted sorted) {
  const int thread = int(threadIdx.x), lane = thread % kWarp, num_experts = tiles.experts;
  int32_t* const begin = DynamicShared<int32_t>();  // [experts], of this tile.
  uint16_t* const of_warps = reinterpret_cast<uint16_t*>(begin + num_experts);
  uint16_t* const of_mine = of_warps + thread / kWarp * num_experts;
  for (int e = lane; e < num_experts; e += kWarp) of_mine[e] = 0;
  int32_t mine[kTileRuns];
  LoadExperts(experts, slots, mine);

  // Counts each warp's slots. `before` is the number of the same expert's slots before this one.
  int before[kTileRuns];
#pragma unroll
  for (int i = 0; i < kTileRuns; ++i) {
    __syncwarp();
    const unsigned same = __match_any_sync(kAllLanes, mine[i]);
    const int below = __popc(same & ((1u << lane) - 1));
    before[i] = mine[i] >= 0 ? of_mine[mine[i]] + below : 0;
    __syncwarp();
    if (mine[i] >= 0 && below == 0) of_mine[mine[i]] = uint16_t(before[i] + __popc(same));
  }

  int32_t of_lower = 0;  // Number of slots of lower experts.
  for (int first = 0; first < num_experts; first += kTileThreads) {
    const int e = first + thread;
    const int32_t count = e < num_experts ? sorted.counts[e] : 0;
    int32_t total;
    const int32_t through = BlockScan(count, &total);  // Synchronises all threads.
    if (e < num_experts) {
      const int32_t offset = of_lower + through - count;
      begin[e] = offset + tiles.counts[e * tiles.tiles + blockIdx.x];
      if (sorted.offsets != nullptr && blockIdx.x == 0) sorted.offsets[e] = offset;
      int sum = 0;
      for (int warp = 0; warp < kTileWarps; ++warp) {
        const int n = of_warps[warp * num_experts + e];
        of_warps[warp * num_experts + e] = uint16_t(sum);
        sum += n;
      }
    }
    of_lower += total;
  }
  if (sorted.offsets != nullptr && blockIdx.x == 0 && thread == 0) {
    sorted.offsets[num_experts] = of_lower;
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kTileRuns; ++i) {
    if (mine[i] < 0) break;
    const int64_t slot = FirstSlot() + i * kWarp + lane;
    const int32_t at = begin[mine[i]] + of_mine[mine[i]] + before[i];
    sorted.order[at] = int32_t(slot);
    sorted.place[slot] = at;
  }
}

struct StoreCount {
  int32_t* counts;
  __device__ void operator()(int expert, int32_t count) const { counts[expert] = count; }
};

}  // namespace

void ExpertOrder(Exec& exec, const ExpertOrderArgs& args) {
  const int64_t experts = args.counts.elements();
  CHECK(experts <= kMostExperts) << "expert_order counts: " << experts
                                 << " experts; CUDA's kernel sorts " << kMostExperts;
  const Sorted sorted = {args.counts.as<int32_t>(), args.order.as<int32_t>(),
                         args.place.as<int32_t>(),
                         args.offsets.data == nullptr ? nullptr : args.offsets.as<int32_t>()};
  const TileCounts tiles = CountTiles(exec, args.experts, experts, CountedFor::kExpertOrder);
  ScanTiles(exec, tiles, StoreCount{args.counts.as<int32_t>()});
  Launch(exec, {tiles.tiles, kTileThreads, size_t(experts) * kExpertBytes}, PlaceKernel,
         args.experts.as<int32_t>(), args.experts.elements(), tiles, sorted);
}

}  // namespace trainyard::cuda
