// The CUDA core of attention.h and attention_part.h. Start at attention_tile.h.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Instantiated for O = T and O = Accumulate<T>.
template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core);
template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core);

// Logs once that these slower kernels run for bf16. Speed reports refuse runs that log this
// (scripts/gpu_check/readers.py).
void LogOurs(DType dtype, const AttentionDims& dims);

}  // namespace trainyard::cuda
