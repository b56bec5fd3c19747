// The matrix product without a library: every dtype, also f64, on any CPU.

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {

// As in kernels/products/matmul.h; bitwise the same for any thread count.
void BlockedMatMul(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cpu
