// The sum of a tensor's slices, in order:
//
//   y[i] = x[0, i] + x[1, i] + ... + x[n-1, i]
//
// A reduce-scatter uses this once the ranks' parts have arrived. Computed in f32 (f64 for f64) and
// rounded once, which gives the same bits as Collective::ReduceScatterSum on the CPU. Bitwise
// deterministic for any thread count.

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
