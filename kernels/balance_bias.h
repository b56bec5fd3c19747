// Balances experts without a loss: the bias of the gate's choice (router.h) falls for experts that
// were chosen more often than the mean, and rises for the others.
//
//   gradient[e] = (write == kAdd ? gradient[e] : 0) + E chosen[e] - sum of chosen
//   bias[e]     = bias[e] - rate * sign(gradient[e])        compute = bias, rounded
//
// The first is of one micro-batch on one rank, and is summed as a gradient is, over micro-batches
// and ranks: E times what is chosen more than the mean. It is no gradient of the loss, and has no
// part in the norm, in clipping and in buckets, which may be sent in bf16. Whole numbers add up
// exactly (f32: to 2^24), so that the sign is the same for every layout; that of 0 is 0. The second
// changes nothing when state->finite == 0.
//
// Source: DeepSeek-V3, arXiv:2412.19437, section 2.1.2; Wang et al. 2024, arXiv:2408.15664,
// algorithm 1. Letters: T tokens, K choices of each, E experts, n elements.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct BalanceBiasGradientArgs {
  ConstTensor experts;  // [T, K]  i32; outside of [0, E): a programmer error that names it
  Tensor gradient;      // [E]     in/out, f64 | f32
  Write write;
};

struct BalanceBiasArgs {
  Tensor master;           // [n]  in/out, f64 | f32
  ConstTensor gradient;    // [n]  dtype of master
  double rate;             // >= 0
  const StepState* state;  // device memory
  Tensor compute = {};     // [n]  out, bf16 or dtype of master; absent when its data is null
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
  if (args.compute.data != nullptr) {
    ExpectDType("balance_bias compute", args.compute, {DType::kBF16, args.master.dtype});
    ExpectElements("balance_bias compute", args.compute, args.compute.dtype, n);
  }
  CHECK(args.rate >= 0) << "balance_bias rate: " << args.rate;
  CHECK(args.state != nullptr) << "balance_bias state: none";
}

}  // namespace trainyard
