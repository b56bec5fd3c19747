// Computes the mean-square loss of rows of real numbers, and the gradient of the loss if `dx` is
// given.
//
//   state->loss += factor sum_t,p (x[t,p] - target[t,p])^2
//   dx[t,p]      = 2 factor (x[t,p] - target[t,p])
//   with factor  = state->loss_scale / P
//
// If loss_scale is one over the tokens of the whole batch, the loss is the mean over all elements.
// Letters: T rows (tokens), P elements of a row. Differences are taken in f32 (f64 when x is f64),
// and the loss is summed in f64. The results are bitwise deterministic for given T, P, device and
// alignment of the tensors; on the CPU they do not depend on the number of threads.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct MeanSquareArgs {
  ConstTensor x;       // [T, P]  f64 | f32 | bf16
  ConstTensor target;  // [T, P]  dtype of x
  StepState* state;    // device memory; the op adds to loss
  Tensor dx = {};      // [T, P]  out, dtype of x, overwritten; may be x; absent: only the loss
};

inline void Check(const MeanSquareArgs& args) {
  const int64_t p = ExpectColumns("mean_square x", args.x), t = args.x.shape.rows();
  ExpectFloat("mean_square x", args.x);
  ExpectMatrix("mean_square target", args.target, args.x.dtype, t, p);
  CHECK(args.state != nullptr) << "mean_square state: none";
  if (args.dx.data != nullptr) ExpectMatrix("mean_square dx", args.dx, args.x.dtype, t, p);
}

}  // namespace trainyard
