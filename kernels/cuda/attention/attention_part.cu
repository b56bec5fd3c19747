// cuDNN computes plain parts (IsPlain) of bf16 that CudnnPartMask takes, and they are merged here
// (attention_by_parts.h). The rest is computed by our kernels: start at attention_forward.cu.

#include "kernels/attention/attention_part.h"
#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/attention_by_parts.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

bool IsUsed(const AttentionForwardCore<bf16, float>&) { return true; }
bool IsUsed(const AttentionBackwardCore<bf16, float>& core) {
  CudnnAttentionPlan plan{AttentionPass::kBackward, core.sequences, core.dims, core.deterministic};
  plan.part = PartRows{.queries = core.part.q_rows,
                       .keys = core.part.kv_rows,
                       .query_stride = core.q.row,
                       .key_stride = core.k.row};
  return plan.IsUsed();
}

template <typename Args>
void AttentionPartOf(Exec& exec, const Args& args) {
  const std::optional<AttentionMask> mask = CudnnPartMask(args.q.dtype, args.dims, args.part);
  if (mask && IsPlain(args)) {
    const auto core = CoreOf<bf16>(args);
    if (IsUsed(core) && AttentionByParts<bf16>(exec, core, *mask, CudnnAttentionPart)) return;
  }
  LogOurs(args.q.dtype, args.dims);
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace

void AttentionPartForward(Exec& exec, const AttentionPartForwardArgs& args) {
  AttentionPartOf(exec, args);
}

void AttentionPartBackward(Exec& exec, const AttentionPartBackwardArgs& args) {
  AttentionPartOf(exec, args);
}

}  // namespace trainyard::cuda
