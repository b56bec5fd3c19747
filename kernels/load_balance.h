// The auxiliary loss that keeps the load of experts even.
//
//   fraction[e] = counts[e] / sum of counts; counts are those of all choices on all ranks, and
//                 constants for the gradient
//   p[t,:] = softmax(logits[t,:]), or sigmoid(logits[t,:]) over its sum + 1e-20
//   state->auxiliary_loss += factor * sum_e fraction[e] sum_t p[t,e]
//
//   dlogits[t,e] = factor p[t,e] (fraction[e] - f) for softmax,
//                  factor p[t,e] (1 - sigmoid) (fraction[e] - f) for sigmoid
//   with f = sum_i fraction[i] p[t,i] and factor = coefficient * E * state->loss_scale
//
// With an even load the loss is `coefficient`, because loss_scale makes a mean over tokens and the
// fractions sum to 1 for every top_k. The fractions are those of one micro-batch on all of its
// ranks. So the loss depends only on the tokens of this micro-batch, and on nothing else of the
// layout.
//
// Rows are computed in the dtype of logits, the loss in f64, on the CPU in the order of t. Bitwise
// deterministic for given T, E and device, on the CPU for any thread count. Letters: T tokens, K
// choices of each, E experts.
//
// Source: Fedus et al. 2021, arXiv:2101.03961, eqs. 4 to 6, with fractions of more than one rank as
// in Qiu et al. 2025, arXiv:2501.11873; sigmoid: DeepSeek-V3, arXiv:2412.19437, eqs. 17 to 20.

#pragma once

#include "kernels/device/step_state.h"
#include "kernels/router.h"

namespace trainyard {

// Counts how often each expert is chosen, as numbers that ranks can sum: exact up to 2^53.
struct LoadBalanceCountsArgs {
  ConstTensor experts;  // [T, K]  i32; a value outside [0, E) is a programmer error that names it
  Tensor counts;        // [E]     out, f64
};

struct LoadBalanceForwardArgs {
  ConstTensor logits;  // [T, E]  f64 | f32
  ConstTensor counts;  // [E]     f64, summed over all ranks; not all zero
  RouterScoring scoring;
  double coefficient;  // >= 0
  StepState* state;    // device memory; auxiliary_loss is added to
};

struct LoadBalanceBackwardArgs {
  ConstTensor logits;  // [T, E]  the forward input
  ConstTensor counts;  // [E]     the forward input
  RouterScoring scoring;
  double coefficient;
  const StepState* state;  // device memory
  Tensor dlogits;  // [T, E]  out, dtype of logits, or bf16 if logits are f32; overwritten; may be
                   // logits if of the same dtype
};

inline void ExpectLoadBalance(const ConstTensor& logits, const ConstTensor& counts,
                              double coefficient) {
  const int64_t e = ExpectColumns("load_balance logits", logits);
  ExpectDType("load_balance logits", logits, {DType::kF64, DType::kF32});
  ExpectData("load_balance logits", logits);
  ExpectElements("load_balance counts", counts, DType::kF64, e);
  CHECK(coefficient >= 0) << "load_balance coefficient: " << coefficient;
}

inline void Check(const LoadBalanceCountsArgs& args) {
  ExpectElements("load_balance experts", args.experts, DType::kI32, args.experts.elements());
  ExpectElements("load_balance counts", args.counts, DType::kF64, args.counts.elements());
}

inline void Check(const LoadBalanceForwardArgs& args) {
  ExpectLoadBalance(args.logits, args.counts, args.coefficient);
  CHECK(args.state != nullptr) << "load_balance state: none";
}

inline void Check(const LoadBalanceBackwardArgs& args) {
  ExpectLoadBalance(args.logits, args.counts, args.coefficient);
  const DType dtype = args.logits.dtype;
  CHECK(args.state != nullptr) << "load_balance state: none";
  ExpectDType("load_balance dlogits", args.dlogits,
              {dtype, dtype == DType::kF32 ? DType::kBF16 : dtype});
  ExpectMatrix("load_balance dlogits", args.dlogits, args.dlogits.dtype, args.logits.shape.rows(),
               args.logits.shape.back());
}

}  // namespace trainyard
