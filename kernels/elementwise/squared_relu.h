// Squared rectified linear unit.
//
//   y  = max(x, 0)^2
//   dx = 2 dy max(x, 0)
//
// Source: So et al. 2021, arXiv:2109.08668, section 3.1.
// Computed in f32 (f64 when x is f64). Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct SquaredReluForwardArgs {
  ConstTensor x;  // any shape, f64 | f32 | bf16
  Tensor y;       // elements of x, out, dtype of x; may be x
};

struct SquaredReluBackwardArgs {
  ConstTensor dy;  // elements of x, dtype of x
  ConstTensor x;   // the forward input
  Tensor dx;       // elements of x, out, overwritten; may be dy or x
};

inline void Check(const SquaredReluForwardArgs& args) {
  ExpectFloat("squared_relu x", args.x);
  ExpectElements("squared_relu y", args.y, args.x.dtype, args.x.elements());
}

inline void Check(const SquaredReluBackwardArgs& args) {
  ExpectFloat("squared_relu x", args.x);
  ExpectElements("squared_relu dy", args.dy, args.x.dtype, args.x.elements());
  ExpectElements("squared_relu dx", args.dx, args.x.dtype, args.x.elements());
}

}  // namespace trainyard
