// Finishes the gradient norm: computes what AdamW needs to know about the whole gradient, in
// StepState.
//
//   grad_norm   = sqrt(grad_norm_squared)
//   clip_factor = clip_norm > 0 ? min(1, clip_norm / (grad_norm + 1e-6)) : 1
//   finite      = loss and grad_norm are finite
//
// Must run after all SumSquares of the step and the reductions of loss and grad_norm_squared over
// ranks. The host sets these two to 0 before the next step. Source: PyTorch clip_grad_norm_ (the
// 1e-6).

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct ClipArgs {
  StepState* state;  // device memory
};

inline void Check(const ClipArgs& args) { CHECK(args.state != nullptr) << "clip state: none"; }

}  // namespace trainyard
