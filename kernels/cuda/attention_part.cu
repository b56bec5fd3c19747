// Start at attention_forward.cu.

#include "kernels/attention_part.h"
#include "kernels/cuda/attention_core.h"
#include "kernels/cuda/kernels.h"

namespace trainyard::cuda {

void AttentionPartForward(Exec& exec, const AttentionPartForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionPartBackward(Exec& exec, const AttentionPartBackwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cuda
