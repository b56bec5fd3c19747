// The core of attention.h and attention_part.h: see attention_forward.cc.

#pragma once

#include "kernels/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Instantiated for O equal to T, and to Accumulate<T>.
template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core);
template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core);

}  // namespace trainyard::cpu
