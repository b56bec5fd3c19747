// The CUDA kernels, cuda::Op for each op; what they compute is said in its header. Arguments have
// passed Check(). Called through CudaBackend(); they enqueue, and do not wait.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/op_list.h"

namespace trainyard::cuda {

TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_KERNEL)

}  // namespace trainyard::cuda
