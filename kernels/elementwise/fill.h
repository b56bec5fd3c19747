// Sets every element: y = value, rounded to the dtype of y.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct FillArgs {
  Tensor y;  // any shape, f64 | f32 | bf16, out
  double value;
};

inline void Check(const FillArgs& args) { ExpectFloat("fill y", args.y); }

}  // namespace trainyard
