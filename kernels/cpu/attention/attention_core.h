// The CPU core of attention.h and attention_part.h. Start at attention_forward.cc.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Instantiated for O = T and O = Accumulate<T>.
template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core);
template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core);

}  // namespace trainyard::cpu
