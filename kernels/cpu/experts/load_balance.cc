#include "kernels/experts/load_balance.h"

#include <numeric>

#include "kernels/cpu/experts/router_scores.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

// The counts of one set.
struct Load {
  const double* count;  // [E]
  double unit;          // 1 / the sum of the counts.
};

// Writes the counts of the sets of this rank's tokens, and no other elements.
template <typename Args>
void ReadLoads(const Args& args, Load* loads) {
  const int64_t experts = args.counts.shape.back(), tokens = args.logits.shape.rows();
  for (int64_t set = args.sets.sample_of(0); set <= args.sets.sample_of(tokens - 1); ++set) {
    const double* const count = args.counts.template as<double>() + set * experts;
    const double sum = std::accumulate(count, count + experts, 0.0);
    CHECK(sum > 0) << "load_balance counts: none of " << experts << " experts was chosen in set "
                   << set;
    loads[set] = {count, 1 / sum};
  }
}

// The divisor that turns a token's scores into probabilities.
template <typename A>
A SumOf(RouterScoring scoring, const A* s, int64_t experts) {
  return scoring == RouterScoring::kSoftmax ? A(1)
                                            : std::accumulate(s, s + experts, A(kSmallestScoreSum));
}

// Returns sum_e fraction[e] p[e].
template <typename A>
A Expected(const A* s, A sum, const Load& load, int64_t experts) {
  A expected = 0;
  for (int64_t e = 0; e < experts; ++e) expected += A(load.count[e] * load.unit) * s[e];
  return expected / sum;
}

// A mean over all tokens of the global batch, not over those with counted targets.
template <typename Args>
double FactorOf(const Args& args) {
  const double scale = args.state->loss_scale * args.state->counted_share;
  return args.coefficient * double(args.logits.shape.back()) * scale;
}

template <typename A>
void Forward(Exec& exec, const LoadBalanceForwardArgs& args) {
  const int64_t tokens = args.logits.shape.rows(), experts = args.logits.shape.back();
  const A* logits = args.logits.as<A>();
  const RouterScoring scoring = args.scoring;
  const size_t of_sets = size_t(args.counts.shape.rows()) * sizeof(Load);
  std::byte* const memory = ContextOf(exec).shared.Reserve(of_sets + size_t(tokens) * sizeof(A));
  Load* const loads = reinterpret_cast<Load*>(memory);
  A* const terms = reinterpret_cast<A*>(memory + of_sets);
  ReadLoads(args, loads);
  ForEachToken<A>(exec, tokens, experts, [=, &args](int64_t t, A* s) {
    RouterScores(scoring, logits + t * experts, experts, s);
    const Load& load = loads[args.sets.sample_of(t)];
    terms[t] = Expected(s, SumOf(scoring, s, experts), load, experts);
  });
  const double factor = FactorOf(args);
  args.state->auxiliary_loss += factor * std::accumulate(terms, terms + tokens, 0.0);
}

template <typename A, typename T>
void Backward(Exec& exec, const LoadBalanceBackwardArgs& args) {
  const int64_t experts = args.logits.shape.back();
  const A* logits = args.logits.as<A>();
  const size_t of_sets = size_t(args.counts.shape.rows()) * sizeof(Load);
  Load* const loads = reinterpret_cast<Load*>(ContextOf(exec).shared.Reserve(of_sets));
  ReadLoads(args, loads);
  const RouterScoring scoring = args.scoring;
  const A factor = A(FactorOf(args));
  T* dlogits = args.dlogits.as<T>();
  ForEachToken<A>(exec, args.logits.shape.rows(), experts, [=, &args](int64_t t, A* s) {
    RouterScores(scoring, logits + t * experts, experts, s);
    const A sum = SumOf(scoring, s, experts);
    const auto [count, unit] = loads[args.sets.sample_of(t)];
    const A expected = Expected(s, sum, {count, unit}, experts);
    T* out = dlogits + t * experts;
    for (int64_t e = 0; e < experts; ++e) {
      const A slope = scoring == RouterScoring::kSoftmax ? s[e] : s[e] / sum * (A(1) - s[e]);
      out[e] = T(factor * slope * (A(count[e] * unit) - expected));
    }
  });
}

}  // namespace

void LoadBalanceCounts(Exec&, const LoadBalanceCountsArgs& args) {
  const int64_t experts = args.counts.shape.back(), choices = args.experts.shape.back();
  const int32_t* expert = args.experts.as<int32_t>();
  double* counts = args.counts.as<double>();
  std::fill_n(counts, args.counts.elements(), 0.0);
  for (int64_t slot = 0; slot < args.experts.elements(); ++slot) {
    CHECK(expert[slot] >= 0 && expert[slot] < experts)
        << "load_balance experts: expert " << expert[slot] << " at " << slot << " of " << experts;
    ++counts[args.sets.sample_of(slot / choices) * experts + expert[slot]];
  }
}

void LoadBalanceForward(Exec& exec, const LoadBalanceForwardArgs& args) {
  if (args.logits.dtype == DType::kF64) {
    Forward<double>(exec, args);
  } else {
    Forward<float>(exec, args);
  }
}

void LoadBalanceBackward(Exec& exec, const LoadBalanceBackwardArgs& args) {
  if (args.logits.dtype == DType::kF64) {
    Backward<double, double>(exec, args);
  } else if (args.dlogits.dtype == DType::kF32) {
    Backward<float, float>(exec, args);
  } else {
    Backward<float, bf16>(exec, args);
  }
}

}  // namespace trainyard::cpu
