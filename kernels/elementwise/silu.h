// The sigmoid linear unit.
//
//   y  = x s,  s = sigmoid(x)
//   dx = dy s (1 + x (1 - s))
//
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 3.
// The formulas are computed in f32 (f64 when x is f64). The results are bitwise deterministic for
// any number of threads.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct SiluForwardArgs {
  ConstTensor x;  // any shape, f64 | f32 | bf16
  Tensor y;       // elements of x, out, dtype of x; may be x
};

struct SiluBackwardArgs {
  ConstTensor dy;  // elements of x, dtype of x
  ConstTensor x;   // the forward input
  Tensor dx;       // elements of x, out, overwritten; may be dy or x
};

inline void Check(const SiluForwardArgs& args) {
  ExpectFloat("silu x", args.x);
  ExpectElements("silu y", args.y, args.x.dtype, args.x.elements());
}

inline void Check(const SiluBackwardArgs& args) {
  ExpectFloat("silu x", args.x);
  ExpectElements("silu dy", args.dy, args.x.dtype, args.x.elements());
  ExpectElements("silu dx", args.dx, args.x.dtype, args.x.elements());
}

}  // namespace trainyard
