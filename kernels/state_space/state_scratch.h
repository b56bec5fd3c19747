// The scratch memory that the CUDA kernels of state_scan.h and state_ends.h need: for their arrays
// of numbers of tokens, of states, and of products of pairs of tokens. Here, because the plan of a
// step's memory counts it.

#pragma once

#include "kernels/state_space/state_scan.h"

namespace trainyard {

// The array lengths of one call.
struct StateScratch {
  // Chunks have the length of a tile of outputs (cuda/tensor_product.h, cuda/plain_product.h).
  StateScratch(const StateDims& d, int64_t tokens, bool tensor_cores)
      : chunk(tensor_cores ? 128 : 64),
        chunks(tokens / d.sequence * ((d.sequence + chunk - 1) / chunk)),
        steps(tokens * d.heads),
        values(tokens * d.inner()),
        states(chunks * d.state_columns()),
        pairs(chunks * chunk * chunk),
        slots((d.head_dim + chunk - 1) / chunk) {}

  int64_t chunk;   // Tokens.
  int64_t chunks;  // Of all parts.
  int64_t steps;   // A number for each token and head.
  int64_t values;  // A number for each token and column of x.
  int64_t states;  // Of all chunks.
  int64_t pairs;   // Of tokens of a chunk, for all chunks.
  int64_t slots;   // Tiles of a head's columns, which sum over columns apart.
};

enum class StateCall : uint8_t { kScan, kScanBackward, kEnds, kEndsBackward };

// The bytes of one call's scratch memory on a GPU, at most.
inline int64_t StateScratchBytes(StateCall call, const StateDims& dims, int64_t tokens,
                                 DType dtype) {
  const int64_t t = int64_t(SizeOf(dtype)), a = int64_t(SizeOf(AccumulateOfDType(dtype)));
  const auto bytes = [&](const StateScratch& s) {
    const int64_t heads = dims.heads, groups = dims.groups;
    const int64_t forward = a * (3 * s.steps + s.states) + t * s.values;
    switch (call) {
      case StateCall::kScan:
        return forward + t * (s.states + s.pairs * heads);
      case StateCall::kScanBackward:
        return forward + a * ((2 + 4 * s.slots) * s.steps + s.states + 3 * s.chunks * heads) +
               t * (s.values + 2 * s.states + s.pairs * (heads + groups));
      case StateCall::kEnds:
        return forward;
      default:
        return forward + a * ((1 + 2 * s.slots) * s.steps + 4 * s.chunks * heads) + t * s.states;
    }
  };
  constexpr int64_t kAlignment = 256 * 24;  // Of each array.
  return std::max(bytes(StateScratch(dims, tokens, /*tensor_cores=*/true)),
                  bytes(StateScratch(dims, tokens, /*tensor_cores=*/false))) +
         kAlignment;
}

}  // namespace trainyard
