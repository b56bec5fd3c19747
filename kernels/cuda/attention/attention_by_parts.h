// Parts of attention (kernels/attention/attention_part.h) by kernels that overwrite their results,
// in the dtype of their inputs: libraries compute a part into memory of its own, and the results
// are merged into those of all parts.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Computes a part without sinks. Overwrites the results. Returns false if it refused, and did
// nothing.
template <typename T>
using ForwardPart = bool (*)(Exec&, const AttentionForwardCore<T, T>&);
template <typename T>
using BackwardPart = bool (*)(Exec&, const AttentionBackwardCore<T, T>&);

// Compute what attention_part.h defines, and return true. Return false without doing anything if
// `attention` refused. The part's mask becomes `mask` (CudnnPartMask). The part's own results lie
// in memory that is kept with the stream (CudnnPartBytes). Heads and rows must have whole packs of
// 16 bytes of T. Throw DeviceError.
template <typename T>
bool AttentionByParts(Exec& exec, const AttentionForwardCore<T, Accumulate<T>>& core,
                      const AttentionMask& mask, ForwardPart<T> attention);
template <typename T>
bool AttentionByParts(Exec& exec, const AttentionBackwardCore<T, Accumulate<T>>& core,
                      const AttentionMask& mask, BackwardPart<T> attention);

}  // namespace trainyard::cuda
