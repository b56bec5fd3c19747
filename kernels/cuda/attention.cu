// Of bf16 cuDNN does what it can; the rest is ours: see attention_forward.cu.

#include "kernels/attention.h"
#include "kernels/cuda/attention_core.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  if (CudnnAttention(exec, args)) return;
  DispatchFloat(args.qkv.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  if (CudnnAttention(exec, args)) return;
  DispatchFloat(args.qkv.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cuda
