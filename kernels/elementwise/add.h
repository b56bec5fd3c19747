// The sum of two tensors: y = a + b. The gradient of both is that of y. Computed in f32 (f64 for
// f64), rounded once. Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct AddArgs {
  ConstTensor a;  // any shape, f64 | f32 | bf16
  ConstTensor b;  // elements and dtype of a
  Tensor y;       // elements and dtype of a, out; may be a or b
};

inline void Check(const AddArgs& args) {
  ExpectFloat("add a", args.a);
  ExpectElements("add b", args.b, args.a.dtype, args.a.elements());
  ExpectElements("add y", args.y, args.a.dtype, args.a.elements());
}

}  // namespace trainyard
