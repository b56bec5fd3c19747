// The matrix product, for callers that say whether the number of rows varies.

#pragma once

#include <cstdint>

#include "kernels/device/exec.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {

// Whether the number of rows of `a` as stored (M, or K if transposed) is the same in every call. If
// it varies, one primitive of oneDNN serves all numbers: no memory and no preparation for each new
// number.
enum class Rows : uint8_t { kFixed, kVary };

// Computes the product, as MatMul does.
void MatMulOfRows(Exec& exec, const MatMulArgs& args, Rows rows);

}  // namespace trainyard::cpu
