// The fast path of attention.h for bf16: attention by cuDNN, if cuDNN has it.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/cuda/attention/packed_attention.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Compute what attention.h defines and return true. Return false without doing anything if cuDNN
// cannot take the call (kernels/attention/cudnn_attention_plan.h), if cuDNN refuses it, and in
// builds without cuDNN. A refusal by cuDNN is logged with its reason. The first call for a shape
// prepares it, and allocates a workspace that is kept. Sequences are padded to whole tiles
// (padded_attention.h). Throws DeviceError.
bool CudnnAttention(Exec& exec, const PackedAttentionForwardArgs& args);
bool CudnnAttention(Exec& exec, const PackedAttentionBackwardArgs& args);

// The same for a part, plain and without sinks (attention_by_parts.h). The mask of core.part must
// be that of CudnnPartMask. The gradients of values must follow those of keys in each row.
bool CudnnAttentionPart(Exec& exec, const AttentionForwardCore<bf16, bf16>& core);
bool CudnnAttentionPart(Exec& exec, const AttentionBackwardCore<bf16, bf16>& core);

}  // namespace trainyard::cuda
