// Proves kernels/loss/preference.h on the CPU: sums, losses and rewards against their formulas, the
// gradient against numeric differentiation in f64, and f32 against f64. Ranks that divide the
// tokens of a sample have the gradients of one rank.

#include "kernels/loss/preference.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::preference {

constexpr double kScale = 0.25, kAnswerScale = 0.125, kBeta = 0.7;
constexpr int64_t kSides = 6;

// Two samples of twelve tokens: two pairs and padding, and one pair.
const Array<int32_t> kSideOf = {
    {24}, {0, 0, 0, 1, 1, 2, 2, 2, 3, 3, -1, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -1}};

Array<int32_t> Targets() {
  auto targets = Indices({24}, 9, 3);
  for (const size_t t : {0, 3, 10, 11, 12, 13, 17, 23}) targets.v[t] = -1;
  return targets;
}

// What the reference says of a side stands at its first token.
Array<double> Reference() {
  auto reference = Zeros<double>({24});
  for (const size_t t : {0, 3, 5, 8, 12, 17}) reference.v[t] = -1 - 0.3 * double(t % 7);
  return reference;
}

Array<double> LogProbs() {
  auto log_probs = Normal<double>({24}, 1);
  for (double& x : log_probs.v) x = -std::abs(x) - 0.01;
  return log_probs;
}

template <typename A>
struct Outputs {
  Array<double> sums = Poison<double>({2, kSides, 3});
  StepState state{.loss_scale = kScale, .answer_scale = kAnswerScale};
  Array<A> dlog_probs = Poison<A>({24});
};

template <typename A>
Outputs<A> Compute(PreferenceMethod method, const Array<double>& log_probs64) {
  Outputs<A> out;
  const auto log_probs = Converted<A>(log_probs64);
  const auto targets = Targets();
  const auto reference = Reference();
  Call(PreferenceSumsArgs{.log_probs = log_probs,
                          .targets = targets,
                          .sides = kSideOf,
                          .reference = reference,
                          .sums = out.sums});
  Call(PreferenceLossArgs{.sums = out.sums,
                          .targets = targets,
                          .sides = kSideOf,
                          .method = method,
                          .beta = kBeta,
                          .adds = true,
                          .state = &out.state,
                          .dlog_probs = out.dlog_probs});
  return out;
}

TEST(PreferenceSums, AreThoseOfTheCountedTargetsOfEachSide) {
  const auto log_probs = LogProbs();
  const auto out = Compute<double>(PreferenceMethod::kDpo, log_probs);
  auto want = Zeros<double>({2, kSides, 3});
  for (int64_t t = 0; t < 24; ++t) {
    const int32_t side = kSideOf.v[size_t(t)];
    if (side < 0) continue;
    double* sum = &want.v[size_t((t / 12 * kSides + side) * 3)];
    sum[1] += Reference().v[size_t(t)];
    if (Targets().v[size_t(t)] < 0) continue;
    sum[0] += log_probs.v[size_t(t)];
    sum[2] += 1;
  }
  for (size_t i = 0; i < want.v.size(); ++i) EXPECT_NEAR(out.sums.v[i], want.v[i], 1e-14) << i;
}

// As the papers write them.
struct Paper {
  double loss = 0, answers = 0, chosen = 0, rejected = 0, right = 0;
};
Paper OfThePapers(PreferenceMethod method, const Array<double>& sums) {
  Paper paper;
  for (const size_t pair : {0, 1, 3}) {  // The third and the last two sides are of no pair.
    const double *c = &sums.v[pair * 6], *r = c + 3;
    double chosen = kBeta * (c[0] - c[1]), rejected = kBeta * (r[0] - r[1]);
    double inner = chosen - rejected, weight = 1;
    if (method == PreferenceMethod::kOrpo) {
      const double p = std::exp(c[0] / c[2]), q = std::exp(r[0] / r[2]);
      chosen = kBeta * std::log(p), rejected = kBeta * std::log(q);
      inner = std::log(p / (1 - p) / (q / (1 - q))), weight = kBeta;
      paper.answers -= kAnswerScale * c[0];
    }
    paper.loss += kScale * weight * -std::log(1 / (1 + std::exp(-inner)));
    paper.chosen += kScale * chosen;
    paper.rejected += kScale * rejected;
    paper.right += chosen > rejected ? kScale : 0;
  }
  return paper;
}

class PreferenceTest : public ::testing::TestWithParam<PreferenceMethod> {};

TEST_P(PreferenceTest, LossAndRewardsAreThoseOfThePapers) {
  const auto out = Compute<double>(GetParam(), LogProbs());
  const Paper want = OfThePapers(GetParam(), out.sums);
  EXPECT_NEAR(out.state.loss, want.loss, 1e-14);
  EXPECT_NEAR(out.state.answer_loss, want.answers, 1e-14);
  EXPECT_NEAR(out.state.chosen_reward, want.chosen, 1e-14);
  EXPECT_NEAR(out.state.rejected_reward, want.rejected, 1e-14);
  EXPECT_NEAR(out.state.reward_accuracy, want.right, 1e-14);
}

TEST_P(PreferenceTest, GradientMatchesNumericGradient) {
  auto log_probs = LogProbs();
  const auto loss = [&] {
    const StepState state = Compute<double>(GetParam(), log_probs).state;
    return state.loss + state.answer_loss;
  };
  const auto got = Compute<double>(GetParam(), log_probs).dlog_probs.v;
  for (const size_t t : {0, 3, 10, 11, 12, 13, 17, 23}) EXPECT_EQ(got[t], 0) << t;
  ExpectGradient(got, log_probs.v, loss, 1e-8);
}

TEST_P(PreferenceTest, F32AgreesWithF64) {
  const auto log_probs = RoundedTo<float>(LogProbs());
  const auto got = Compute<float>(GetParam(), log_probs);
  const auto want = Compute<double>(GetParam(), log_probs);
  EXPECT_EQ(got.sums.v, want.sums.v);
  EXPECT_EQ(got.state.loss, want.state.loss);
  for (size_t t = 0; t < 24; ++t) {
    EXPECT_NEAR(double(got.dlog_probs.v[t]), want.dlog_probs.v[t], 1e-6) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, PreferenceTest,
                         ::testing::Values(PreferenceMethod::kDpo, PreferenceMethod::kOrpo),
                         [](const auto& info) {
                           return info.param == PreferenceMethod::kDpo ? "Dpo" : "Orpo";
                         });

// Two ranks have six tokens of each sample, in which a pair is cut. Bug it must catch: a factor of
// the part of an answer that this rank has.
TEST(Preference, OfDividedSamplesHasTheGradientsOfWholeOnes) {
  const auto whole = Compute<double>(PreferenceMethod::kDpo, LogProbs());
  const auto part = [](const auto& all, size_t rank) {
    auto mine = all;
    mine.shape = Shape{12};
    mine.v.clear();
    for (size_t sample = 0; sample < 2; ++sample) {
      const auto begin = all.v.begin() + long(sample * 12 + rank * 6);
      mine.v.insert(mine.v.end(), begin, begin + 6);
    }
    return mine;
  };
  auto sums = Zeros<double>({2, kSides, 3});
  for (size_t rank = 0; rank < 2; ++rank) {
    auto of_rank = Poison<double>({2, kSides, 3});
    Call(PreferenceSumsArgs{.log_probs = part(LogProbs(), rank),
                            .targets = part(Targets(), rank),
                            .sides = part(kSideOf, rank),
                            .reference = part(Reference(), rank),
                            .sums = of_rank});
    for (size_t i = 0; i < sums.v.size(); ++i) sums.v[i] += of_rank.v[i];
  }
  StepState state{.loss_scale = kScale};
  for (size_t rank = 0; rank < 2; ++rank) {
    auto dlog_probs = Poison<double>({12});
    Call(PreferenceLossArgs{.sums = sums,
                            .targets = part(Targets(), rank),
                            .sides = part(kSideOf, rank),
                            .method = PreferenceMethod::kDpo,
                            .beta = kBeta,
                            .adds = rank == 0,
                            .state = &state,
                            .dlog_probs = dlog_probs});
    const auto want = part(whole.dlog_probs, rank).v;
    for (size_t t = 0; t < 12; ++t) EXPECT_NEAR(dlog_probs.v[t], want[t], 1e-15) << t;
  }
  EXPECT_NEAR(state.loss, whole.state.loss, 1e-14);
}

// Margins of hundreds, and answers that the model is certain of.
TEST(Preference, ExtremeLogProbabilitiesStayFinite) {
  for (const PreferenceMethod method : {PreferenceMethod::kDpo, PreferenceMethod::kOrpo}) {
    for (const double of_chosen : {0.0, -1e3}) {
      auto log_probs = LogProbs();
      for (size_t t = 0; t < 24; ++t) {
        log_probs.v[t] = kSideOf.v[t] % 2 == 0 ? of_chosen : -1e3 - of_chosen;
      }
      const auto got = Compute<double>(method, log_probs);
      EXPECT_TRUE(std::isfinite(got.state.loss));
      for (const double d : got.dlog_probs.v) EXPECT_TRUE(std::isfinite(d));
    }
  }
}

TEST(PreferenceDeathTest, NamesASideThatASampleCannotHave) {
  auto sides = kSideOf;
  sides.v[5] = kSides;
  auto sums = Zeros<double>({2, kSides, 3});
  EXPECT_DEATH(Call(PreferenceSumsArgs{.log_probs = LogProbs(),
                                       .targets = Targets(),
                                       .sides = sides,
                                       .reference = Reference(),
                                       .sums = sums}),
               "preference sides: side 6 at 5, a sample has 6");
}

}  // namespace trainyard::testing::preference
