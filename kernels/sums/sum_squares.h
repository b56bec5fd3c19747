// Adds the sum of squares to the global gradient norm: state->grad_norm_squared += sum_i x[i]^2.
// Summed in f64. Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct SumSquaresArgs {
  ConstTensor x;     // any shape, f64 | f32 | bf16
  StepState* state;  // device memory
};

inline void Check(const SumSquaresArgs& args) {
  ExpectFloat("sum_squares x", args.x);
  CHECK(args.state != nullptr) << "sum_squares state: none";
}

}  // namespace trainyard
