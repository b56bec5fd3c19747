// The router of a mixture of experts: chooses the experts of each token, and the weights of their
// outputs.
//
//   s[t,:] = softmax(logits[t,:]), or sigmoid of each logit
//   chosen: the top_k largest of s[t,e] + bias[e]; of equal ones the expert with the lower number
//   weight = scale s[t,e] for each chosen e, divided by n if `normalize`
//   n = 1e-20 + sum over the chosen of s[t,:]
//
//   ds[t,e]      = scale (dweight - sum_i dweight_i s_i / n) / n, or scale dweight; 0 if not chosen
//   dlogits[t,e] = s (ds - sum_i ds[t,i] s[t,i]) for softmax, s (1 - s) ds for sigmoid
//
// The bias affects the choice only, not the weights (balance_bias.h). With several `groups`, each
// of E/groups neighbouring experts, only experts of the top_groups best groups are chosen. A group
// is ranked by the sum of its two largest s + bias; of equal ones the lower group wins.
//
// For benchmarks, kRoundRobin loads all experts evenly: token t chooses (t K + j) % E for j < K
// with the constant weight scale / K, and dlogits is 0.
//
// Logits that are not finite give K different experts, but it is not defined which. Computed in the
// dtype of logits. Bitwise deterministic for any thread count. Letters: T tokens, E experts,
// K = top_k.
//
// Source: DeepSeek-V3, arXiv:2412.19437, section 2.1.2 (bias, groups, sigmoid); Shazeer et al.
// 2017, arXiv:1701.06538 (softmax).

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

enum class RouterScoring : uint8_t { kSoftmax, kSigmoid };
enum class RouterChoice : uint8_t { kBest, kRoundRobin };

// Prevents a division by zero if all scores underflow.
inline constexpr double kSmallestScoreSum = 1e-20;

struct RouterOptions {
  RouterScoring scoring = RouterScoring::kSoftmax;
  int64_t top_k = 1;
  int64_t groups = 1;      // Divides E.
  int64_t top_groups = 1;  // At most `groups`; they hold at least top_k experts.
  bool normalize = false;
  double scale = 1;
  RouterChoice choice = RouterChoice::kBest;
};

struct RouterForwardArgs {
  ConstTensor logits;     // [T, E]  f64 | f32
  ConstTensor bias = {};  // [E]     dtype of logits; none if its data is
                          // null
  RouterOptions options;
  Tensor experts;  // [T, K]  out, i32; largest s + bias first
  Tensor weights;  // [T, K]  out, dtype of logits
};

struct RouterBackwardArgs {
  ConstTensor logits;    // [T, E]  the forward input
  ConstTensor experts;   // [T, K]  the forward output
  ConstTensor dweights;  // [T, K]  dtype of logits
  RouterOptions options;
  Tensor dlogits;  // [T, E]  out, dtype of logits, or bf16 if logits are f32; overwritten; may be
                   // logits if of the same dtype
};

inline void ExpectRouter(const ConstTensor& logits, const RouterOptions& options) {
  const int64_t e = ExpectColumns("router logits", logits), k = options.top_k;
  ExpectDType("router logits", logits, {DType::kF64, DType::kF32});
  ExpectData("router logits", logits);
  CHECK(k >= 1 && k <= e) << "router top_k: " << k << " of " << e << " experts";
  CHECK(options.groups >= 1 && e % options.groups == 0)
      << "router groups: " << options.groups << " do not divide " << e << " experts";
  CHECK(options.top_groups >= 1 && options.top_groups <= options.groups &&
        options.top_groups * (e / options.groups) >= k)
      << "router top_groups: " << options.top_groups << " of " << options.groups << " groups of "
      << e / options.groups << " experts, for " << k;
}

inline void Check(const RouterForwardArgs& args) {
  ExpectRouter(args.logits, args.options);
  const int64_t t = args.logits.shape.rows(), e = args.logits.shape.back();
  const DType dtype = args.logits.dtype;
  if (args.bias.data != nullptr) {
    ExpectElements("router bias", args.bias, dtype, e);
  }
  ExpectMatrix("router experts", args.experts, DType::kI32, t, args.options.top_k);
  ExpectMatrix("router weights", args.weights, dtype, t, args.options.top_k);
}

inline void Check(const RouterBackwardArgs& args) {
  ExpectRouter(args.logits, args.options);
  const int64_t t = args.logits.shape.rows(), e = args.logits.shape.back();
  const DType dtype = args.logits.dtype;
  ExpectMatrix("router experts", args.experts, DType::kI32, t, args.options.top_k);
  ExpectMatrix("router dweights", args.dweights, dtype, t, args.options.top_k);
  ExpectDType("router dlogits", args.dlogits, {dtype, dtype == DType::kF32 ? DType::kBF16 : dtype});
  ExpectMatrix("router dlogits", args.dlogits, args.dlogits.dtype, t, e);
}

}  // namespace trainyard
