// cuDNN computes the parts that cudnn_plan_of.h gives it, and they are merged here
// (attention_by_parts.h). The rest is computed by our kernels: start at attention_forward.cu.

#include "kernels/attention/attention_part.h"
#include "kernels/cuda/attention/attention_by_parts.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/cudnn_plan_of.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

template <typename Args>
void AttentionPartOf(Exec& exec, const Args& args) {
  if (const auto plan = CudnnPlanOf(args)) {
    const auto core = CoreOf<bf16>(args);
    if (AttentionByParts<bf16>(exec, core, plan->dims.mask, CudnnAttentionPart)) return;
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
