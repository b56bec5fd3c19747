// The auxiliary loss that keeps the load of experts even.
//
//   s = sets.sample_of(t)
//   fraction[s,e] = counts[s,e] / sum_i counts[s,i]; counts are those of all choices on all ranks
//                   that have tokens of the set, and constants for the gradient
//   p[t,:] = softmax(logits[t,:]), or sigmoid(logits[t,:]) over its sum + 1e-20
//   state->auxiliary_loss += factor * sum_t sum_e fraction[s,e] p[t,e]
//
//   dlogits[t,e] = factor p[t,e] (fraction[s,e] - f) for softmax,
//                  factor p[t,e] (1 - sigmoid) (fraction[s,e] - f) for sigmoid
//   with f = sum_i fraction[s,i] p[t,i]
//   and factor = coefficient * E * state->loss_scale * state->counted_share
//
// With an even load the loss is `coefficient`: the two scales make a mean over all tokens, whether
// their targets are counted or not, and the fractions sum to 1 for every top_k. A set is one
// micro-batch on all of its ranks, or one sequence. So the loss depends only on the tokens of the
// sets, and on nothing else of the layout.
//
// Rows are computed in the dtype of logits, the loss in f64, on the CPU in the order of t. Bitwise
// deterministic for given T, E and device, on the CPU for any thread count. Letters: T tokens, K
// choices of each, E experts, B sets.
//
// Source: Fedus et al. 2021, arXiv:2101.03961, eqs. 4 to 6, with fractions of more than one rank as
// in Qiu et al. 2025, arXiv:2501.11873; sequences as sets, and sigmoid: DeepSeek-V3,
// arXiv:2412.19437, eqs. 17 to 20.

#pragma once

#include "kernels/device/sample_rows.h"
#include "kernels/device/step_state.h"
#include "kernels/experts/router.h"

namespace trainyard {

// The tokens of a set.
enum class AuxLossScope : uint8_t {
  kBatch,     // A micro-batch on all of its ranks.
  kSequence,  // A sequence.
};

// Counts how often each expert is chosen, as numbers that ranks can sum: exact up to 2^53.
struct LoadBalanceCountsArgs {
  ConstTensor experts;  // [T, K]  i32; a value outside [0, E) is a programmer error that names it
  SampleRows sets;      // The set of each token.
  Tensor counts;        // [B, E]  out, f64
};

struct LoadBalanceForwardArgs {
  ConstTensor logits;  // [T, E]  f64 | f32
  ConstTensor counts;  // [B, E]  f64, summed over all ranks; no row of a token's set is zero
  SampleRows sets;
  RouterScoring scoring;
  double coefficient;  // >= 0
  StepState* state;    // device memory; auxiliary_loss is added to
};

struct LoadBalanceBackwardArgs {
  ConstTensor logits;  // [T, E]  the forward input
  ConstTensor counts;  // [B, E]  the forward input
  SampleRows sets;
  RouterScoring scoring;
  double coefficient;
  const StepState* state;  // device memory
  Tensor dlogits;  // [T, E]  out, dtype of logits, or bf16 if logits are f32; overwritten; may be
                   // logits if of the same dtype
};

template <typename Args>
void ExpectLoadBalance(const Args& args) {
  const int64_t e = ExpectColumns("load_balance logits", args.logits);
  ExpectDType("load_balance logits", args.logits, {DType::kF64, DType::kF32});
  ExpectData("load_balance logits", args.logits);
  const int64_t sets = args.counts.shape.rows();
  ExpectMatrix("load_balance counts", args.counts, DType::kF64, sets, e);
  CHECK(args.sets.fit(args.logits.shape.rows(), sets))
      << "load_balance sets: " << sets << " of " << args.sets.per_sample << " tokens, for tokens "
      << args.sets.first << " to " << args.sets.first + args.logits.shape.rows();
  CHECK(args.coefficient >= 0) << "load_balance coefficient: " << args.coefficient;
  CHECK(args.state != nullptr) << "load_balance state: none";
}

inline void Check(const LoadBalanceCountsArgs& args) {
  ExpectElements("load_balance experts", args.experts, DType::kI32, args.experts.elements());
  ExpectElements("load_balance counts", args.counts, DType::kF64, args.counts.elements());
  CHECK(args.sets.fit(args.experts.shape.rows(), args.counts.shape.rows()))
      << "load_balance sets: " << args.counts.shape.rows() << " of " << args.sets.per_sample
      << " tokens, for tokens " << args.sets.first << " to "
      << args.sets.first + args.experts.shape.rows();
}

inline void Check(const LoadBalanceForwardArgs& args) { ExpectLoadBalance(args); }

inline void Check(const LoadBalanceBackwardArgs& args) {
  ExpectLoadBalance(args);
  const DType dtype = args.logits.dtype;
  ExpectDType("load_balance dlogits", args.dlogits,
              {dtype, dtype == DType::kF32 ? DType::kBF16 : dtype});
  ExpectMatrix("load_balance dlogits", args.dlogits, args.dlogits.dtype, args.logits.shape.rows(),
               args.logits.shape.back());
}

}  // namespace trainyard
