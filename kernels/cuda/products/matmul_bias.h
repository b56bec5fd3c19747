// Adds a bias at the start of a matrix product, if the product cannot add it at its end.

#pragma once

#include "kernels/device/exec.h"
#include "kernels/products/matmul.h"

namespace trainyard::cuda {

// c[m,n] = bias[n], exactly. Uses only bias, c and c_columns of `args`. A following product that
// adds to c gives the product that `args` asks for, with its sum rounded once.
void FillWithBias(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cuda
