// Who computes a call of attention on a GPU. For tests of the published runs, which have no GPU.

#pragma once

#include "absl/strings/match.h"
#include "kernels/attention/attention_core.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/cudnn_plan_of.h"
#include "models/program/op.h"
#include "tests/train/start/published_calls.h"

namespace trainyard::testing {

using cuda::CudnnPlanOf;

// Whether our kernels compute the call on the tensor cores, if cuDNN does not.
template <typename Args>
bool OnOurTensorCores(const Args& args) {
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
