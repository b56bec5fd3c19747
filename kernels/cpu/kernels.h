// The CPU kernels: cpu::Op for each op. The op's header describes what they compute. Their
// arguments have passed Check(). Called through CpuBackend().

#pragma once

#include "kernels/device/exec.h"
#include "kernels/op_list.h"

namespace trainyard::cpu {

TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_KERNEL)

}  // namespace trainyard::cpu
