// The product of a linear layer whose weight is kept in fewer bits than its input.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {

// Computes the product of `a` in f32 with `b` in bf16, which is widened in registers. Made for the
// few rows that generation has: then the product takes as long as reading the weight. The sum of an
// output is taken in the same order whatever the number of rows and threads is.
void NarrowWeightMatMul(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cpu
