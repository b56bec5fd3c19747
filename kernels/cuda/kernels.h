// The CUDA kernels: cuda::Op for each op. The op's header describes what its kernels compute. The
// kernels are called through CudaBackend(), with arguments that have passed Check(). They enqueue
// work and do not wait.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/op_list.h"

namespace trainyard::cuda {

TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_KERNEL)

}  // namespace trainyard::cuda
