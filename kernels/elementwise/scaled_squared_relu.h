// Squared ReLU with a factor for each row. An expert without a gate computes it between its two
// products. The factor is the weight of the expert for the row; it may be applied before the second
// product because that product is linear.
//
//   h = max(x[r,:], 0)^2        y = w h
//   dx = 2 w dy max(x, 0)       dw = sum over the row of dy h
//
// Letters: R is the bound on the number of rows, F the width. `count` is the number of rows, read
// when the kernel runs; further rows are neither read nor written. Computed in f32 (f64 when x is
// f64). Bitwise deterministic for any thread count. squared_relu.h has the form without a factor,
// and scaled_swiglu.h the one with a gate.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct ScaledSquaredReluForwardArgs {
  ConstTensor x;      // [R, F]  f64 | f32 | bf16
  ConstTensor w;      // [R]     f32 (f64 when x is f64)
  ConstTensor count;  // [1]     i32, at most R
  Tensor y;           // [R, F]  out, dtype of x
};

struct ScaledSquaredReluBackwardArgs {
  ConstTensor dy;     // [R, F]  dtype of x
  ConstTensor x;      // [R, F]  the forward input
  ConstTensor w;      // [R]     the forward input
  ConstTensor count;  // [1]     the forward input
  Tensor dx;          // [R, F]  out, dtype of x, overwritten; may be x
  Tensor dw;          // [R]     out, dtype of w, overwritten; may be w
};

inline void ExpectScaledSquaredRelu(const ConstTensor& x, const ConstTensor& w,
                                    const ConstTensor& count) {
  ExpectColumns("scaled_squared_relu x", x);
  ExpectFloat("scaled_squared_relu x", x);
  ExpectElements("scaled_squared_relu w", w, AccumulateOfDType(x.dtype), x.shape.rows());
  ExpectElements("scaled_squared_relu count", count, DType::kI32, 1);
}

inline void Check(const ScaledSquaredReluForwardArgs& args) {
  ExpectScaledSquaredRelu(args.x, args.w, args.count);
  ExpectMatrix("scaled_squared_relu y", args.y, args.x.dtype, args.x.shape.rows(),
               args.x.shape.back());
}

inline void Check(const ScaledSquaredReluBackwardArgs& args) {
  ExpectScaledSquaredRelu(args.x, args.w, args.count);
  const int64_t rows = args.x.shape.rows(), columns = args.x.shape.back();
  ExpectMatrix("scaled_squared_relu dy", args.dy, args.x.dtype, rows, columns);
  ExpectMatrix("scaled_squared_relu dx", args.dx, args.x.dtype, rows, columns);
  ExpectElements("scaled_squared_relu dw", args.dw, args.w.dtype, rows);
}

}  // namespace trainyard
