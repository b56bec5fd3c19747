// For builds without cuDNN.

#include "kernels/cuda/cudnn_attention.h"

namespace trainyard::cuda {

bool CudnnAttention(Exec&, const PackedAttentionForwardArgs&) { return false; }
bool CudnnAttention(Exec&, const PackedAttentionBackwardArgs&) { return false; }

}  // namespace trainyard::cuda
