// Who computes a call of attention on a GPU, as kernels/cuda/attention/attention.cu and
// attention_part.cu choose. For tests of the published runs, which have no GPU.

#pragma once

#include <optional>

#include "absl/strings/match.h"
#include "kernels/attention/attention_core.h"
#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/packed_attention.h"
#include "models/program/op.h"
#include "tests/train/start/published_calls.h"

namespace trainyard::testing {

template <typename Args>
constexpr bool kIsBackward =
    std::is_same_v<Args, AttentionBackwardArgs> || std::is_same_v<Args, AttentionPartBackwardArgs>;

// cuDNN's plan for the call; nullopt if our kernels compute it.
template <typename Args>
std::optional<CudnnAttentionPlan> CudnnPlanOf(const Args& args) {
  if (!IsPlain(args)) return std::nullopt;
  const DType dtype = args.q.dtype;
  CudnnAttentionPlan plan{.sequences = args.q.rows / args.dims.sequence, .dims = args.dims};
  if constexpr (kIsBackward<Args>) {
    plan.pass = AttentionPass::kBackward, plan.deterministic = args.deterministic;
  }
  if constexpr (requires { args.part; }) {
    const auto mask = CudnnPartMask(dtype, args.dims, args.part);
    if (!mask) return std::nullopt;
    plan.dims.mask = *mask;
    plan.part = PartRows{.queries = args.part.q_rows,
                         .keys = args.part.kv_rows,
                         .query_stride = args.q.stride,
                         .key_stride = args.k.stride};
  } else {
    if (!cuda::PackedOf(args) || !CudnnTakes(dtype, args.dims)) return std::nullopt;
    plan.dims.sequence = PaddedSequence(dtype, args.dims, kCudnnTokens);
    if (plan.dims.sequence == 0) return std::nullopt;
  }
  return plan.IsUsed() ? std::optional(plan) : std::nullopt;
}

// Whether the call is computed on the tensor cores, by cuDNN or by our kernels.
template <typename Args>
bool OnTensorCores(const Args& args) {
  if (CudnnPlanOf(args)) return true;
  return args.q.dtype == DType::kBF16 && cuda::TensorCoresTake(CoreOf<bf16>(args));
}

// Calls visit(name, args) for each call of attention of the published runs, whole or of a part.
// Returns the number of runs.
template <typename Visit>
int ForEachPublishedAttention(const Visit& visit) {
  const auto is_attention = [](const Instance& instance) {
    return absl::StrContains(instance.op->name(), "attention");
  };
  return ForEachPublishedRank(is_attention, [&](const std::string& name, const CallBook& calls) {
    const auto each = [&](const auto& args) { visit(name, args); };
    calls.ForEach<AttentionForwardArgs>(each);
    calls.ForEach<AttentionBackwardArgs>(each);
    calls.ForEach<AttentionPartForwardArgs>(each);
    calls.ForEach<AttentionPartBackwardArgs>(each);
  });
}

}  // namespace trainyard::testing
