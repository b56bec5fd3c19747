// Bound by the launch. Slots are read once, with sixteen loads in flight. Counts are whole numbers,
// so the order in which atomics add them does not matter.
#include "kernels/cuda/context.h"
#include "kernels/cuda/experts/expert_counts.h"
#include "kernels/cuda/failure.h"

namespace trainyard::cuda {
namespace {

constexpr int64_t kMostExperts = (48 << 10) / sizeof(int32_t);

// What a kernel that counts for `op` says of an expert that does not exist.
struct WrongExpert {
  Message<3> message;
  Failure fail = {};
};
WrongExpert WrongExpertOf(CountedFor op) {
  switch (op) {
    case CountedFor::kBalanceBias:
      return {"balance_bias experts: expert % at % of %"};
    case CountedFor::kExpertOrder:
      return {"expert_order experts: expert % at % of %"};
    default:
      return {"load_balance experts: expert % at % of %"};
  }
}

__global__ void __launch_bounds__(kTileThreads)
    CountKernel(const int32_t* experts, int64_t slots, TileCounts tiles, WrongExpert wrong_expert) {
  int32_t* const counts = DynamicShared<int32_t>();
  const int thread = int(threadIdx.x);
  for (int e = thread; e < tiles.experts; e += kTileThreads) counts[e] = 0;
  int32_t mine[kTileRuns];
  LoadExperts(experts, slots, mine);
  __syncthreads();
  // Failing inside the loop would prevent unrolling, and `mine` would not be in registers.
  int64_t wrong_slot = -1;
  int32_t wrong = 0;
#pragma unroll
  for (int i = 0; i < kTileRuns; ++i) {
    const int64_t slot = FirstSlot() + i * kWarp + thread % kWarp;
    if (mine[i] >= 0 && mine[i] < tiles.experts) {
      atomicAdd(&counts[mine[i]], 1);
    } else if (slot < slots) {
      wrong_slot = slot;
      wrong = mine[i];
    }
  }
  if (wrong_slot >= 0) {
    wrong_expert.fail(wrong_expert.message, wrong, wrong_slot, tiles.experts);
  }
  __syncthreads();
  for (int e = thread; e < tiles.experts; e += kTileThreads) {
    tiles.counts[e * tiles.tiles + blockIdx.x] = counts[e];
  }
}

}  // namespace

TileCounts CountTiles(Exec& exec, const ConstTensor& chosen, int64_t experts, CountedFor op) {
  CHECK(experts <= kMostExperts) << experts << " experts; CUDA kernels count " << kMostExperts;
  const int64_t slots = chosen.elements(), tiles = CeilDiv(slots, kTileSlots);
  const TileCounts counts = {ScratchOf<int32_t>(exec, experts * tiles), int(experts), tiles};
  Launch(exec, {tiles, kTileThreads, size_t(experts) * sizeof(int32_t)}, CountKernel,
         chosen.as<int32_t>(), slots, counts, WrongExpertOf(op));
  return counts;
}

}  // namespace trainyard::cuda
