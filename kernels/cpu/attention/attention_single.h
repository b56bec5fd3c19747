// Attention of one query a sequence, as generation has it for each next token.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Whether Run may leave the call to RunSingle.
template <typename T, typename O>
bool IsSingle(const AttentionForwardCore<T, O>& core) {
  return core.part.q_rows == 1 && core.dropout.samples == nullptr &&
         core.write == Write::kOverwrite;
}

// Computes the same as Run, within rounding. Reads the keys and values where they are, once, so
// bound by memory. T is float or double.
template <typename T>
void RunSingle(Exec& exec, const AttentionForwardCore<T, T>& core);

}  // namespace trainyard::cpu
