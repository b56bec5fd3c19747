// Sum of the slices that a tensor is made of, in their order:
//
//   y[i] = x[0, i] + x[1, i] + ... + x[n-1, i]
//
// What a reduce-scatter does with the ranks' parts once they are there. Computed in f32 (f64 for
// f64), rounded once: the bits of Collective::ReduceScatterSum on the CPU. Bitwise deterministic
// for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct SumSlicesArgs {
  ConstTensor x;  // n slices of y's shape, one after the other; f64 | f32 | bf16
  Tensor y;       // any shape, dtype of x, out; does not overlap x
};

inline void Check(const SumSlicesArgs& args) {
  ExpectFloat("sum_slices x", args.x);
  ExpectElements("sum_slices y", args.y, args.x.dtype, args.y.elements());
  CHECK(args.y.elements() > 0 && args.x.elements() % args.y.elements() == 0)
      << "sum_slices x: " << args.x.shape << " is no whole number of slices " << args.y.shape;
}

}  // namespace trainyard
