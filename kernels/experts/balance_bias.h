// Balances experts without a loss. The bias on the router's choice (router.h) falls for experts
// that were chosen more often than the mean, and rises for the others.
//
//   gradient[e] = (write == kAdd ? gradient[e] : 0) + E chosen[e] - sum of chosen
//   bias[e]     = bias[e] - rate * sign(gradient[e])
//
// gradient is computed for one micro-batch on one rank, and is summed like a gradient over
// micro-batches and ranks. It then is E times the number of choices above the mean. It is not a
// gradient of the loss, and takes no part in the gradient norm, in clipping and in buckets, which
// may be sent in bf16. Whole numbers add up exactly (in f32 up to 2^24), so the sign is the same
// for every layout. The sign of 0 is 0. The bias does not change if state->finite == 0.
//
// Letters: T tokens, K choices of each, E experts, n elements. Source: DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2; Wang et al. 2024, arXiv:2408.15664, algorithm 1.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct BalanceBiasGradientArgs {
  ConstTensor experts;  // [T, K]  i32; a value outside [0, E) is a programmer error that names it
  Tensor gradient;      // [E]     in/out, f64 | f32
  Write write;
};

struct BalanceBiasArgs {
  Tensor master;           // [n]  in/out, f64 | f32
  ConstTensor gradient;    // [n]  dtype of master
  double rate;             // >= 0
  const StepState* state;  // device memory
};

inline void Check(const BalanceBiasGradientArgs& args) {
  ExpectElements("balance_bias experts", args.experts, DType::kI32, args.experts.elements());
  ExpectDType("balance_bias gradient", args.gradient, {DType::kF64, DType::kF32});
  ExpectData("balance_bias gradient", args.gradient);
}

inline void Check(const BalanceBiasArgs& args) {
  const int64_t n = args.master.elements();
  ExpectDType("balance_bias master", args.master, {DType::kF64, DType::kF32});
  ExpectData("balance_bias master", args.master);
  ExpectElements("balance_bias gradient", args.gradient, args.master.dtype, n);
  CHECK(args.rate >= 0) << "balance_bias rate: " << args.rate;
  CHECK(args.state != nullptr) << "balance_bias state: none";
}

}  // namespace trainyard
