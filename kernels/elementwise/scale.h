// A tensor times a number: y = factor x. The gradient of x is that of y, times the same number.
// Computed in f32 (f64 for f64), rounded once. Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct ScaleArgs {
  ConstTensor x;  // any shape, f64 | f32 | bf16
  Tensor y;       // elements and dtype of x, out; may be x
  double factor;
};

inline void Check(const ScaleArgs& args) {
  ExpectFloat("scale x", args.x);
  ExpectElements("scale y", args.y, args.x.dtype, args.x.elements());
}

}  // namespace trainyard
