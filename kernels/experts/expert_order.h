// Sorts slots by expert. Slot t K + j is choice j of token t.
//
//   counts[e]  = slots with experts[slot] == e
//   order      = the slots in order of (experts[slot], slot)
//   place      = its inverse: place[order[i]] == i
//   offsets[e] = the place of the first slot of expert e; offsets[E] = T K
//
// Letters: T tokens, K choices of each, E experts. An expert outside [0, E) is a programmer error
// that names it.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct ExpertOrderArgs {
  ConstTensor experts;  // [T, K]  i32
  Tensor counts;        // [E]     out, i32
  Tensor order;         // [T*K]   out, i32
  Tensor place;         // [T, K]  out, i32
  Tensor offsets = {};  // [E + 1] out, i32; absent when its data is null
};

inline void Check(const ExpertOrderArgs& args) {
  const int64_t slots = args.experts.elements();
  ExpectElements("expert_order experts", args.experts, DType::kI32, slots);
  ExpectElements("expert_order counts", args.counts, DType::kI32, args.counts.elements());
  ExpectElements("expert_order order", args.order, DType::kI32, slots);
  ExpectElements("expert_order place", args.place, DType::kI32, slots);
  if (args.offsets.data != nullptr) {
    const int64_t experts = args.counts.elements();
    ExpectElements("expert_order offsets", args.offsets, DType::kI32, experts + 1);
  }
}

}  // namespace trainyard
