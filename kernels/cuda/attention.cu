// See attention_forward.cu.

#include "kernels/attention.h"
#include "kernels/cuda/attention_core.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cuda
