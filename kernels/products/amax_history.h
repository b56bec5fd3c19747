// The greatest absolute values that a tensor had in the last steps, from which its scale in the
// next step follows (delayed scaling): history[n - 1] is of the last step. In the beginning all are
// zero, so that the scale is 1 (quantize.h), and small gradients vanish in the first step.
//
//   gradient[0] = max(write == kAdd ? gradient[0] : 0, amax[0], amax[1], ...); the rest is 0
//   history     = history without its first element, followed by gradient[0]
//
// `gradient` is of one micro-batch on one rank; the maximum over micro-batches and ranks is taken
// where a gradient is summed. It is not a gradient of the loss, and takes no part in the gradient
// norm and in clipping. The history does not change if state->finite == 0.
//
// Of the tensors of G groups each has a history: row g of `history` and `gradient`, and row g of
// amax.
//
// Letters: n steps, G groups. Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3;
// Transformer Engine's recipe DelayedScaling.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct AmaxHistoryGradientArgs {
  ConstTensor amax;  // any shape, f64 | f32;  for groups a multiple of G elements
  Tensor gradient;   // [n] | [G, n]  in/out, dtype of amax
  Write write;
};

struct AmaxHistoryArgs {
  Tensor history;          // [n] | [G, n]  in/out, f64 | f32
  ConstTensor gradient;    // shape and dtype of history
  const StepState* state;  // device memory
};

inline void Check(const AmaxHistoryGradientArgs& args) {
  ExpectDType("amax_history amax", args.amax, {DType::kF64, DType::kF32});
  ExpectData("amax_history amax", args.amax);
  CHECK(args.gradient.elements() > 0) << "amax_history gradient: empty";
  ExpectElements("amax_history gradient", args.gradient, args.amax.dtype, args.gradient.elements());
  const int64_t groups = args.gradient.shape.rows();
  CHECK(args.amax.elements() % groups == 0)
      << "amax_history amax: wanted values of " << groups << " groups, got " << args.amax.shape;
}

inline void Check(const AmaxHistoryArgs& args) {
  const int64_t n = args.history.elements();
  ExpectDType("amax_history history", args.history, {DType::kF64, DType::kF32});
  ExpectData("amax_history history", args.history);
  CHECK(n > 0) << "amax_history history: empty";
  ExpectElements("amax_history gradient", args.gradient, args.history.dtype, n);
  CHECK(args.state != nullptr) << "amax_history state: none";
}

}  // namespace trainyard
