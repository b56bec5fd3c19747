// Gaussian error linear unit, in its tanh form.
//
//   y = x/2 (1 + tanh(z)),  z = sqrt(2/pi) (x + 0.044715 x^3)
//   dx = dy (1/2 (1 + tanh z) + x/2 (1 - tanh^2 z) sqrt(2/pi) (1 + 3 * 0.044715 x^2))
//
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
// Computed in f32 (f64 when x is f64). Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct GeluForwardArgs {
  ConstTensor x;  // any shape, f64 | f32 | bf16
  Tensor y;       // elements of x, out, dtype of x; may be x
};

struct GeluBackwardArgs {
  ConstTensor dy;  // elements of x, dtype of x
  ConstTensor x;   // the forward input
  Tensor dx;       // elements of x, out, overwritten; may be dy or x
};

inline void Check(const GeluForwardArgs& args) {
  ExpectFloat("gelu x", args.x);
  ExpectElements("gelu y", args.y, args.x.dtype, args.x.elements());
}

inline void Check(const GeluBackwardArgs& args) {
  ExpectFloat("gelu x", args.x);
  ExpectElements("gelu dy", args.dy, args.x.dtype, args.x.elements());
  ExpectElements("gelu dx", args.dx, args.x.dtype, args.x.elements());
}

}  // namespace trainyard
