// What cuBLASLt lacks for products of operands in 8 bits (kernels/products/scaled_matmul.h).

#pragma once

#include "kernels/device/exec.h"
#include "kernels/products/scaled_matmul.h"

namespace trainyard::cuda {

// The product of any operands, without cuBLASLt: multiplies each number by its scale and sums in
// f32 (f64 when c is f64), as a CPU does. Far slower than the tensor cores.
void WidenedProduct(Exec& exec, const ScaledMatMulArgs& args);

// Element (r, c) of a matrix of scales is data[r * row_stride + c * column_stride].
template <typename T>
struct ScalesView {
  T* data;
  int64_t row_stride, column_stride;
};

// Copies a matrix of scales to another order. The matrices do not overlap.
void ArrangeScales(Exec& exec, int64_t rows, int64_t columns, const ScalesView<const float>& from,
                   const ScalesView<float>& to);

}  // namespace trainyard::cuda
