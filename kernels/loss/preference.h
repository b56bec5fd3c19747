// Losses of pairs of answers to one question, of which people prefer the chosen one to the rejected
// one.
//
// A sample holds up to P/2 pairs. The *side* of a token says to which answer its target belongs: 2i
// for the chosen answer of the sample's pair i, 2i + 1 for the rejected one, -1 for none. Sums of
// the sides of N samples:
//
//   sums[n,p,:] = (log-probability, log-probability by the reference, counted targets)
//
// If ranks divide the tokens of a sample, the ranks' sums are added before they are used. For a
// pair, with c and r for the chosen and the rejected answer, pi(.) for the first sum, ref(.) for
// the second, |.| for the third, and softplus(x) = log(1 + exp(x)):
//
//   DPO   loss   = softplus(-(reward(c) - reward(r))), reward(y) = beta (pi(y) - ref(y))
//   ORPO  loss   = beta softplus(-odds), reward(y) = beta mean(y), mean(y) = pi(y) / |y|
//         odds   = mean(c) - mean(r) - log(1 - exp(mean(c))) + log(1 - exp(mean(r)))
//         answers also get the cross-entropy of the chosen answers
//
//   state->loss            += loss_scale * sum of loss
//   state->answer_loss     += answer_scale * sum of -pi(c), of ORPO alone
//   state->chosen_reward   += loss_scale * sum of reward(c); rejected_reward likewise
//   state->reward_accuracy += loss_scale * number of pairs with reward(c) > reward(r)
//   dlog_probs[t]           = the derivative of state->loss + state->answer_loss
//
// where state->loss_scale is 1 / pairs of the whole global batch, and state->answer_scale is 1 /
// counted targets of its chosen answers. A pair is a side 2i with counted targets; its side 2i + 1
// must have some, too. All is computed in f64, whatever the log-probabilities are; on the CPU in
// the order of t, on a GPU in an order that depends only on the sides. Bitwise deterministic.
//
// Letters: T tokens, N samples, P sides of a sample.
//
// Sources: Rafailov et al. 2023, arXiv:2305.18290, eq. 7; Hong et al. 2024, arXiv:2403.07691,
// eqs. 4 to 7. Both as in TRL.

#pragma once

#include <cmath>

#include "common/host_device.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

enum class PreferenceMethod : uint8_t { kDpo, kOrpo };

struct PreferenceOptions {
  PreferenceMethod method = PreferenceMethod::kDpo;
  double beta = 0;  // > 0
};

struct PreferenceSumsArgs {
  ConstTensor log_probs;  // [T]        f64 | f32
  ConstTensor targets;    // [T]        i32, < 0: not counted
  ConstTensor sides;      // [T]        i32 in [-1, P); within a sample, equal ones are neighbours
  ConstTensor reference;  // [T]        f64; a token's part of the sum of its side
  Tensor sums;            // [N, P, 3]  out, f64; N divides T
};

struct PreferenceLossArgs {
  ConstTensor sums;     // [N, P, 3]  f64, P even
  ConstTensor targets;  // [T]        i32
  ConstTensor sides;    // [T]        i32
  PreferenceMethod method;
  double beta;        // > 0
  bool adds;          // whether `state` is added to: not on ranks that have another rank's sums
  StepState* state;   // device memory
  Tensor dlog_probs;  // [T]        out, f64 | f32
};

inline void Check(const PreferenceSumsArgs& args) {
  const int64_t t = args.targets.elements();
  ExpectDType("preference log_probs", args.log_probs, {DType::kF64, DType::kF32});
  ExpectElements("preference log_probs", args.log_probs, args.log_probs.dtype, t);
  ExpectElements("preference targets", args.targets, DType::kI32, t);
  ExpectElements("preference sides", args.sides, DType::kI32, t);
  ExpectElements("preference reference", args.reference, DType::kF64, t);
  const Shape& sums = args.sums.shape;
  CHECK(sums.rank() == 3 && sums[0] > 0 && t % sums[0] == 0 && sums[2] == 3)
      << "preference sums: wanted [samples, sides, 3] for " << t << " tokens, got " << sums;
  ExpectElements("preference sums", args.sums, DType::kF64, sums.elements());
}

inline void Check(const PreferenceLossArgs& args) {
  const int64_t t = args.targets.elements();
  const Shape& sums = args.sums.shape;
  CHECK(sums.rank() == 3 && sums[0] > 0 && t % sums[0] == 0 && sums[1] % 2 == 0 && sums[2] == 3)
      << "preference sums: wanted [samples, sides, 3] for " << t << " tokens, got " << sums;
  ExpectElements("preference sums", args.sums, DType::kF64, sums.elements());
  ExpectElements("preference targets", args.targets, DType::kI32, t);
  ExpectElements("preference sides", args.sides, DType::kI32, t);
  CHECK(args.beta > 0) << "preference beta: " << args.beta;
  CHECK(args.state != nullptr) << "preference state: none";
  ExpectDType("preference dlog_probs", args.dlog_probs, {DType::kF64, DType::kF32});
  ExpectElements("preference dlog_probs", args.dlog_probs, args.dlog_probs.dtype, t);
}

// What a pair gives, without the scales of the batch.
struct PreferenceTerms {
  double loss, chosen_reward, rejected_reward;
  double dchosen, drejected;  // Derivatives of the loss by the log-probability of an answer.
};

// `chosen` and `rejected` are the pair's three sums each.
TRAINYARD_HOST_DEVICE inline PreferenceTerms TermsOf(PreferenceMethod method, double beta,
                                                     const double* chosen, const double* rejected) {
  const bool orpo = method == PreferenceMethod::kOrpo;
  // A mean of 0, of targets with the probability 1, would have infinite odds.
  constexpr double kLargestMean = -1e-12;
  const auto of = [=](const double* sums) {
    if (!orpo) return sums[0] - sums[1];
    const double mean = sums[0] / sums[2];
    return mean < kLargestMean ? mean : kLargestMean;
  };
  const double c = of(chosen), r = of(rejected);
  double margin = beta * (c - r), factor = beta, slope_c = 1, slope_r = 1;
  if (orpo) {
    // 1 - exp(x) is -expm1(x).
    const double rest_c = -std::expm1(c), rest_r = -std::expm1(r);
    margin = c - r - std::log(rest_c) + std::log(rest_r);
    slope_c = 1 / (rest_c * chosen[2]), slope_r = 1 / (rest_r * rejected[2]);
  }
  const double small = std::exp(-std::abs(margin));
  const double softplus = std::log1p(small) + (margin < 0 ? -margin : 0);
  const double sigmoid = margin < 0 ? 1 / (1 + small) : small / (1 + small);  // Of -margin.
  return {.loss = orpo ? beta * softplus : softplus,
          .chosen_reward = beta * c,
          .rejected_reward = beta * r,
          .dchosen = -factor * sigmoid * slope_c,
          .drejected = factor * sigmoid * slope_r};
}

}  // namespace trainyard
