// Attention on cuDNN, where it has it: the fast path of attention.h for bf16.

#pragma once

#include "kernels/cuda/packed_attention.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Each computes what attention.h says and returns true, or returns false having done nothing: for
// what cuDNN does not take (kernels/cudnn_attention_plan.h), where it refuses, and in builds
// without it. Prepared by the first call for a shape, which allocates a workspace that is kept.
// Sequences are padded to whole tiles (padded_attention.h). A refusal by cuDNN is logged with its
// reason. Throws DeviceError.
bool CudnnAttention(Exec& exec, const PackedAttentionForwardArgs& args);
bool CudnnAttention(Exec& exec, const PackedAttentionBackwardArgs& args);

}  // namespace trainyard::cuda
