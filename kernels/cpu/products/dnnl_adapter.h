// The matrix products that oneDNN computes. oneDNN's C++ interface throws; the adapter catches
// everything.

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/cpu/products/matmul_rows.h"

namespace trainyard::cpu {

// Computes the product and returns true. Returns false without doing anything if oneDNN has no fast
// code for it: f64, or bf16 on a CPU without such instructions. The first call for a shape prepares
// its primitive. Sums are in f32. Deterministic for a given thread count.
bool DnnlMatMul(Exec& exec, const MatMulArgs& args, Rows rows = Rows::kFixed);

}  // namespace trainyard::cpu
