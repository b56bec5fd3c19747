// A warp for each token, with the scores of its experts in shared memory. Shared by the router
// (router.h) and the auxiliary loss (load_balance.h).

#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/experts/router.h"

namespace trainyard::cuda {

// The number of warps in a block, or fewer if the bytes that each needs leave no room.
constexpr int kTokenWarps = 8;
inline Grid WarpForEachToken(int64_t tokens, int64_t bytes) {
  constexpr int64_t kShared = 48 << 10;
  CHECK(bytes <= kShared) << "router logits: one token's experts take " << bytes
                          << " bytes of shared memory; legal: up to " << kShared;
  const int64_t warps = std::min<int64_t>(kTokenWarps, kShared / bytes);
  return {std::min(CeilDiv(tokens, warps), kMaxBlocks), int(warps) * kWarp, size_t(warps * bytes)};
}

// This warp's first token, the distance to its next token, and its part of the shared memory.
__device__ inline int64_t FirstToken() {
  return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
}
__device__ inline int64_t TokenStride() { return int64_t(gridDim.x) * blockDim.x / kWarp; }
template <typename A>
__device__ A* WarpShared(int64_t elements) {
  return DynamicShared<A>() + threadIdx.x / kWarp * elements;
}

__device__ inline float Exp(float x) { return expf(x); }
__device__ inline double Exp(double x) { return exp(x); }

// Calls body(e) for each of this lane's experts.
template <typename Body>
__device__ void ForLaneExperts(int experts, const Body& body) {
  for (int e = int(threadIdx.x) % kWarp; e < experts; e += kWarp) body(e);
}

// Computes s[e] of one token in shared memory: softmax or sigmoid of its logits. Each lane computes
// the scores of its own experts; other lanes may read them after __syncwarp().
template <typename A>
__device__ void RouterScores(RouterScoring scoring, const A* logits, int experts, A* s) {
  if (scoring == RouterScoring::kSigmoid) {
    // Uses no exponential of a large number, which would be infinite.
    ForLaneExperts(experts, [&](int e) {
      const A x = logits[e], small = Exp(x < 0 ? x : -x);
      s[e] = (x < 0 ? small : A(1)) / (A(1) + small);
    });
    return;
  }
  A largest = logits[0], sum = 0;
  ForLaneExperts(experts, [&](int e) {
    s[e] = logits[e];
    largest = s[e] > largest ? s[e] : largest;
  });
  largest = WarpReduce(largest, Max());
  ForLaneExperts(experts, [&](int e) { sum += s[e] = Exp(s[e] - largest); });
  const A inverse = A(1) / WarpReduce(sum, Sum());
  ForLaneExperts(experts, [&](int e) { s[e] *= inverse; });
}

}  // namespace trainyard::cuda
