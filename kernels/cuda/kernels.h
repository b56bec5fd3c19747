// The CUDA kernels: cuda::Op for each op. The op's header describes what they compute. Their
// arguments have passed Check(). Called through CudaBackend(). They enqueue work and do not wait.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/op_list.h"

namespace trainyard::cuda {

TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_KERNEL)

}  // namespace trainyard::cuda
