// Which calls of attention cuDNN computes, and with which plan: the one choice that
// attention_part.cu and cudnn_attention.cc make, which attention.cu calls. Tests of published runs
// ask it about calls of both kinds.

#pragma once

#include <optional>

#include "kernels/attention/attention_core.h"
#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/packed_attention.h"

namespace trainyard::cuda {

// Each CudnnPlanOf returns cuDNN's plan for a call, or nullopt if our kernels compute the call.
// Sequences that are padded have their padded length in the plan.
inline std::optional<CudnnAttentionPlan> CudnnPlanOf(const PackedAttentionForwardArgs& args) {
  return CudnnWholePlan(args.qkv.dtype, {.pass = AttentionPass::kForward,
                                         .sequences = args.qkv.shape[0] / args.dims.sequence,
                                         .dims = args.dims});
}
inline std::optional<CudnnAttentionPlan> CudnnPlanOf(const PackedAttentionBackwardArgs& args) {
  return CudnnWholePlan(args.qkv.dtype, {.pass = AttentionPass::kBackward,
                                         .sequences = args.qkv.shape[0] / args.dims.sequence,
                                         .dims = args.dims,
                                         .deterministic = args.deterministic});
}

// Returns the plan for a part whose mask is that of CudnnPartMask.
template <typename Core>
CudnnAttentionPlan CudnnPlanOfPart(const Core& core) {
  CudnnAttentionPlan plan = {.sequences = core.sequences, .dims = core.dims};
  if constexpr (requires { core.deterministic; }) {
    plan.pass = AttentionPass::kBackward;
    plan.deterministic = core.deterministic;
  }
  plan.dims.mask = core.part.mask;
  plan.part = PartRows{.queries = core.part.q_rows,
                       .keys = core.part.kv_rows,
                       .query_stride = core.q.row,
                       .key_stride = core.k.row};
  return plan;
}

// Calls of attention.h, and of attention_part.h.
template <typename Args>
std::optional<CudnnAttentionPlan> CudnnPlanOf(const Args& args) {
  if constexpr (requires { args.part; }) {
    const auto mask = CudnnPartMask(args.q.dtype, args.dims, args.part);
    if (!mask || !IsPlain(args)) return std::nullopt;
    auto core = CoreOf<bf16>(args);
    core.part.mask = *mask;
    const CudnnAttentionPlan plan = CudnnPlanOfPart(core);
    return plan.IsUsed() ? std::optional(plan) : std::nullopt;
  } else {
    const auto packed = PackedOf(args);
    return packed ? CudnnPlanOf(*packed) : std::nullopt;
  }
}

}  // namespace trainyard::cuda
