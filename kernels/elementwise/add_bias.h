// Adds a bias to each row: y[t,n] = x[t,n] + bias[n]. The gradient of x is that of y; column_sum.h
// has the gradient of the bias. Used by linear layers whose sums other ranks finish; in other
// layers matmul adds the bias. Letters: T rows, N columns. Computed in f32 (f64 for f64), rounded
// once. Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct AddBiasArgs {
  ConstTensor x;     // [T, N]  f64 | f32 | bf16
  ConstTensor bias;  // [N]     dtype of x
  Tensor y;          // [T, N]  out, dtype of x; may be x
};

inline void Check(const AddBiasArgs& args) {
  const int64_t columns = ExpectColumns("add_bias x", args.x);
  ExpectFloat("add_bias x", args.x);
  ExpectElements("add_bias bias", args.bias, args.x.dtype, columns);
  ExpectMatrix("add_bias y", args.y, args.x.dtype, args.x.shape.rows(), columns);
}

}  // namespace trainyard
