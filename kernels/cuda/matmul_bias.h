// A bias as the start of a matrix product, where its end cannot add it.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/matmul.h"

namespace trainyard::cuda {

// c[m,n] = bias[n], exactly; of `args` only these two are used. A product that adds to c is then
// the one that `args` asks for, its sum rounded once.
void FillWithBias(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cuda
