// The matrix product of our own: every dtype, f64 among them, on any CPU.

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/matmul.h"

namespace trainyard::cpu {

// As kernels/matmul.h says; bitwise the same for any thread count.
void BlockedMatMul(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cpu
