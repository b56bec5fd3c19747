#include "kernels/loss/preference.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

// CHECKs the side of token t.
int64_t SideOf(const int32_t* sides, int64_t t, int64_t count) {
  CHECK(sides[t] >= -1 && sides[t] < count)
      << "preference sides: side " << sides[t] << " at " << t << ", a sample has " << count;
  return sides[t];
}

template <typename A>
void AddSums(const PreferenceSumsArgs& args) {
  const int64_t tokens = args.targets.elements(), sides = args.sums.shape[1];
  const int64_t of_sample = tokens / args.sums.shape[0];
  const A* log_probs = args.log_probs.as<A>();
  const int32_t* targets = args.targets.as<int32_t>();
  const double* reference = args.reference.as<double>();
  double* sums = args.sums.as<double>();
  std::fill_n(sums, args.sums.elements(), 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t side = SideOf(args.sides.as<int32_t>(), t, sides);
    if (side < 0) continue;
    double* sum = sums + (t / of_sample * sides + side) * 3;
    sum[1] += reference[t];
    if (targets[t] < 0) continue;
    sum[0] += double(log_probs[t]);
    sum[2] += 1;
  }
}

void AddToState(const PreferenceLossArgs& args) {
  const double* sums = args.sums.as<double>();
  StepState& state = *args.state;
  const int64_t pairs = args.sums.elements() / 6;
  double loss = 0, answers = 0, chosen = 0, rejected = 0, right = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const double* pair = sums + i * 6;
    if (pair[2] == 0) continue;
    const PreferenceTerms terms = TermsOf(args.method, args.beta, pair, pair + 3);
    loss += terms.loss;
    answers -= pair[0];
    chosen += terms.chosen_reward;
    rejected += terms.rejected_reward;
    right += terms.chosen_reward > terms.rejected_reward ? 1 : 0;
  }
  state.loss += state.loss_scale * loss;
  if (args.method == PreferenceMethod::kOrpo) state.answer_loss += state.answer_scale * answers;
  state.chosen_reward += state.loss_scale * chosen;
  state.rejected_reward += state.loss_scale * rejected;
  state.reward_accuracy += state.loss_scale * right;
}

template <typename A>
void Gradient(const PreferenceLossArgs& args) {
  const int64_t tokens = args.targets.elements(), sides = args.sums.shape[1];
  const int64_t of_sample = tokens / args.sums.shape[0];
  const int32_t* targets = args.targets.as<int32_t>();
  const double* sums = args.sums.as<double>();
  A* out = args.dlog_probs.as<A>();
  const double of_answers = args.method == PreferenceMethod::kOrpo ? args.state->answer_scale : 0.0;
  int64_t known = -1;  // The side of `factor`.
  double factor = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t side = SideOf(args.sides.as<int32_t>(), t, sides);
    const int64_t place = t / of_sample * sides + side;
    if (side >= 0 && place != known) {
      known = place;
      const double* pair = sums + place / 2 * 6;
      const PreferenceTerms terms = TermsOf(args.method, args.beta, pair, pair + 3);
      factor = args.state->loss_scale * (side % 2 == 0 ? terms.dchosen : terms.drejected);
      if (side % 2 == 0) factor -= of_answers;
    }
    out[t] = side >= 0 && targets[t] >= 0 ? A(factor) : A(0);
  }
}

}  // namespace

void PreferenceSums(Exec&, const PreferenceSumsArgs& args) {
  args.log_probs.dtype == DType::kF64 ? AddSums<double>(args) : AddSums<float>(args);
}

void PreferenceLoss(Exec&, const PreferenceLossArgs& args) {
  if (args.adds) AddToState(args);
  args.dlog_probs.dtype == DType::kF64 ? Gradient<double>(args) : Gradient<float>(args);
}

}  // namespace trainyard::cpu
