// The matrix products that oneDNN does. Its C++ interface throws; nothing of that leaves the
// adapter.

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/matmul.h"

namespace trainyard::cpu {

// Computes the product and returns true, or returns false having done nothing where oneDNN has no
// fast code for it: f64, or bf16 on a CPU without such instructions. The primitive for a shape is
// prepared by the first call. Sums are in f32; deterministic for a given thread count.
bool DnnlMatMul(Exec& exec, const MatMulArgs& args);

}  // namespace trainyard::cpu
