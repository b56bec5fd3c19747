// Start at attention_forward.cc.

#include "kernels/attention/attention.h"

#include "kernels/cpu/attention/attention_core.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Run(exec, CoreOf<decltype(scalar)>(args)); });
}

}  // namespace trainyard::cpu
