// Proves kernels/experts/balance_bias.h on the CPU: the deviations and the step by hand, that they
// add up exactly however choices are divided, and that the rule does balance a gate.

#include "kernels/experts/balance_bias.h"

#include "gtest/gtest.h"
#include "kernels/experts/router.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"

namespace trainyard::testing::balance_bias {

TEST(BalanceBias, GradientIsTheDeviationTimesTheNumberOfExperts) {
  const Array<int32_t> experts = {{3, 2}, {1, 3, 3, 0, 3, 1}};  // The mean is 6 / 5.
  auto gradient = Poison<double>({5});
  BalanceBiasGradientArgs args{
      .experts = experts, .gradient = gradient, .write = Write::kOverwrite};
  Call(args);
  EXPECT_EQ(gradient.v, (std::vector<double>{-1, 4, -6, 9, -6}));
  args.write = Write::kAdd;
  Call(args);
  EXPECT_EQ(gradient.v, (std::vector<double>{-2, 8, -12, 18, -12}));
}

// Bitwise: the sign must not depend on the layout, where an expert gets exactly the mean above all.
TEST(BalanceBias, PartsAddUpExactly) {
  constexpr int64_t kExperts = 7, kTokens = 30, kChoices = 3;
  const auto experts = Indices({kTokens, kChoices}, kExperts, 1);
  auto whole = Poison<float>({kExperts}), parts = Poison<float>({kExperts});
  Call(BalanceBiasGradientArgs{.experts = experts, .gradient = whole, .write = Write::kOverwrite});
  for (int64_t t = 0; t < kTokens; ++t) {
    Call(BalanceBiasGradientArgs{
        .experts = {experts.v.data() + t * kChoices, DType::kI32, {1, kChoices}},
        .gradient = parts,
        .write = t == 0 ? Write::kOverwrite : Write::kAdd});
  }
  EXPECT_EQ(parts.v, whole.v);
}

template <typename A>
void ExpectStep(int64_t finite) {
  auto master = Filled<A>({4}, A(1));
  const Array<A> gradient = {{4}, {A(3), A(0), A(-1e-3), A(NAN)}};
  StepState state{.clip_factor = 0.5, .finite = finite};
  Call(BalanceBiasArgs{.master = master, .gradient = gradient, .rate = 0.25, .state = &state});
  const std::vector<A> want =
      finite ? std::vector<A>{A(0.75), A(1), A(1.25), A(1)} : std::vector<A>(4, A(1));
  EXPECT_EQ(master.v, want);
}

TEST(BalanceBias, StepsByTheRateAgainstTheSign) {
  for (const int64_t finite : {1, 0}) {
    ExpectStep<double>(finite);
    ExpectStep<float>(finite);
  }
}

TEST(BalanceBias, WorksWithoutAComputeCopy) {
  auto master = Filled<float>({2}, 1);
  const Array<float> gradient = {{2}, {1, -1}};
  const StepState state;
  Call(BalanceBiasArgs{.master = master, .gradient = gradient, .rate = 0.5, .state = &state});
  EXPECT_EQ(master.v, (std::vector<float>{0.5, 1.5}));
}

// A gate that prefers low experts strongly: after some steps each gets about its share.
TEST(BalanceBias, BalancesAGateThatPrefersSomeExperts) {
  constexpr int64_t kTokens = 500, kExperts = 8, kChoices = 2;
  auto logits = Normal<double>({kTokens, kExperts}, 1);
  for (size_t i = 0; i < logits.v.size(); ++i) logits.v[i] -= double(i % kExperts) / 2;
  auto bias = Zeros<double>({kExperts}), deviation = Zeros<double>({kExperts});
  auto experts = Zeros<int32_t>({kTokens, kChoices});
  auto weights = Zeros<double>({kTokens, kChoices});
  const StepState state;
  const auto worst = [&] {
    Call(RouterForwardArgs{.logits = logits,
                           .bias = bias,
                           .options = {.scoring = RouterScoring::kSigmoid, .top_k = kChoices},
                           .experts = experts,
                           .weights = weights});
    Call(BalanceBiasGradientArgs{
        .experts = experts, .gradient = deviation, .write = Write::kOverwrite});
    return *std::max_element(deviation.v.begin(), deviation.v.end()) / (kTokens * kChoices);
  };
  EXPECT_GT(worst(), 1);  // More than twice its share.
  for (int step = 0; step < 110; ++step) {
    Call(BalanceBiasArgs{.master = bias, .gradient = deviation, .rate = 0.02, .state = &state});
    worst();
  }
  EXPECT_LT(worst(), 0.25);
}

TEST(BalanceBiasDeathTest, NamesWhatDoesNotFit) {
  const Array<int32_t> experts = {{1, 2}, {0, 3}};
  auto gradient = Zeros<float>({3}), master = Zeros<float>({4});
  const StepState state;
  EXPECT_DEATH(
      Call(BalanceBiasGradientArgs{.experts = experts, .gradient = gradient, .write = Write::kAdd}),
      "balance_bias experts: expert 3 at 1 of 3");
  EXPECT_DEATH(
      Call(BalanceBiasArgs{.master = master, .gradient = gradient, .rate = 1, .state = &state}),
      "balance_bias gradient: wanted f32 with 4 elements");
  EXPECT_DEATH(
      Call(BalanceBiasArgs{.master = master, .gradient = master, .rate = -1, .state = &state}),
      "balance_bias rate: -1");
}

}  // namespace trainyard::testing::balance_bias
