// For builds without cuDNN.

#include "kernels/cuda/attention/cudnn_attention.h"

namespace trainyard::cuda {

bool CudnnAttention(Exec&, const PackedAttentionForwardArgs&) { return false; }
bool CudnnAttention(Exec&, const PackedAttentionBackwardArgs&) { return false; }
bool CudnnAttentionPart(Exec&, const AttentionForwardCore<bf16, bf16>&) { return false; }
bool CudnnAttentionPart(Exec&, const AttentionBackwardCore<bf16, bf16>&) { return false; }

}  // namespace trainyard::cuda
