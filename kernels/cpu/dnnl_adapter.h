// The matrix products that oneDNN does. Its C++ interface throws; nothing of that leaves the
// adapter.

#pragma once

#include "kernels/cpu/context.h"
#include "kernels/matmul.h"

namespace trainyard::cpu {

// Whether the rows of `a` as stored (M, or K when it is transposed) are as many in every call.
// Where they vary, one primitive serves all of them: no memory for each new number, nor time to
// prepare.
enum class Rows : uint8_t { kFixed, kVary };

// Computes the product and returns true, or returns false having done nothing where oneDNN has no
// fast code for it: f64, or bf16 on a CPU without such instructions. The primitive for a shape is
// prepared by the first call. Sums are in f32; deterministic for a given thread count.
bool DnnlMatMul(Exec& exec, const MatMulArgs& args, Rows rows = Rows::kFixed);

}  // namespace trainyard::cpu
