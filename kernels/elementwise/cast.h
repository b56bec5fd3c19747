// Copies with a change of dtype: y = x, rounded to nearest even (f64 to bf16 via f32).

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct CastArgs {
  ConstTensor x;  // any shape, f64 | f32 | bf16
  Tensor y;       // elements of x, f64 | f32 | bf16, out; does not overlap x
};

inline void Check(const CastArgs& args) {
  ExpectFloat("cast x", args.x);
  ExpectFloat("cast y", args.y);
  ExpectElements("cast y", args.y, args.y.dtype, args.x.elements());
}

}  // namespace trainyard
