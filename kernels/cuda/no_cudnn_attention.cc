// Of builds without cuDNN.

#include "kernels/cuda/cudnn_attention.h"

namespace trainyard::cuda {

bool CudnnAttention(Exec&, const AttentionForwardArgs&) { return false; }
bool CudnnAttention(Exec&, const AttentionBackwardArgs&) { return false; }

}  // namespace trainyard::cuda
