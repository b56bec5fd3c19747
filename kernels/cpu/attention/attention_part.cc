// Start at attention_forward.cc.

#include "kernels/attention/attention_part.h"

#include "kernels/cpu/attention/attention_core.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void AttentionPartForward(Exec& exec, const AttentionPartForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionPartBackward(Exec& exec, const AttentionPartBackwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cpu
