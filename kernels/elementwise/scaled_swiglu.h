// SwiGLU with a factor for each row. An expert computes it between its two products. The factor is
// the weight of the expert for the row; it may be applied before the second product because that
// product is linear.
//
//   h = g sigmoid(g) u       g = x[r, :F], u = x[r, F:]
//   y = w h
//   dg = w dy u sigmoid(g) (1 + g (1 - sigmoid(g)))       du = w dy g sigmoid(g)
//   dw = sum over the row of dy h
//
// The clamped form (limit > 0) is that of the gpt-oss release, arXiv:2508.10925, section 2.2:
//
//   g = min(x[r, :F], limit)
//   u = min(max(x[r, F:], -limit), limit)
//   h = g sigmoid(1.702 g) (u + 1)
//   dg = 0 where x[r, :F] > limit        du = 0 where |x[r, F:]| > limit
//
// Letters: R is the bound on the number of rows, F the width. `count` is the number of rows, read
// when the kernel runs; further rows are neither read nor written. Computed in f32 (f64 when x is
// f64). Bitwise deterministic for any thread count. swiglu.h has the form without a factor.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

// The slope of the clamped form's sigmoid. With this slope x sigmoid(1.702 x) is close to GELU
// (Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2).
inline constexpr double kClampedSwiGluSlope = 1.702;

struct ScaledSwiGluForwardArgs {
  ConstTensor x;      // [R, 2F]  f64 | f32 | bf16
  ConstTensor w;      // [R]      f32 (f64 when x is f64)
  ConstTensor count;  // [1]      i32, at most R
  Tensor y;           // [R, F]   out, dtype of x
  double limit = 0;   // >= 0; 0: not clamped
};

struct ScaledSwiGluBackwardArgs {
  ConstTensor dy;     // [R, F]   dtype of x
  ConstTensor x;      // [R, 2F]  the forward input
  ConstTensor w;      // [R]      the forward input
  ConstTensor count;  // [1]      the forward input
  Tensor dx;          // [R, 2F]  out, dtype of x, overwritten; may be x
  Tensor dw;          // [R]      out, dtype of w, overwritten; may be w
  double limit = 0;   // the forward argument
};

inline void ExpectScaledSwiGlu(const ConstTensor& x, const ConstTensor& w, const ConstTensor& count,
                               double limit) {
  const int64_t columns = ExpectColumns("scaled_swiglu x", x);
  ExpectFloat("scaled_swiglu x", x);
  CHECK(columns % 2 == 0) << "scaled_swiglu x: odd width " << x.shape;
  ExpectElements("scaled_swiglu w", w, AccumulateOfDType(x.dtype), x.shape.rows());
  ExpectElements("scaled_swiglu count", count, DType::kI32, 1);
  CHECK(limit >= 0) << "scaled_swiglu limit: " << limit;
}

inline void Check(const ScaledSwiGluForwardArgs& args) {
  ExpectScaledSwiGlu(args.x, args.w, args.count, args.limit);
  ExpectMatrix("scaled_swiglu y", args.y, args.x.dtype, args.x.shape.rows(),
               args.x.shape.back() / 2);
}

inline void Check(const ScaledSwiGluBackwardArgs& args) {
  ExpectScaledSwiGlu(args.x, args.w, args.count, args.limit);
  const int64_t rows = args.x.shape.rows(), columns = args.x.shape.back();
  ExpectMatrix("scaled_swiglu dy", args.dy, args.x.dtype, rows, columns / 2);
  ExpectMatrix("scaled_swiglu dx", args.dx, args.x.dtype, rows, columns);
  ExpectElements("scaled_swiglu dw", args.dw, args.w.dtype, rows);
}

}  // namespace trainyard
