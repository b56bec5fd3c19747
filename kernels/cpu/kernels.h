// The CPU kernels, cpu::Op for each op; what they compute is said in its header. Arguments have
// passed Check(). Called through CpuBackend().

#pragma once

#include "kernels/device/exec.h"
#include "kernels/op_list.h"

namespace trainyard::cpu {

TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_KERNEL)

}  // namespace trainyard::cpu
