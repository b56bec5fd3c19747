// Proves kernels/experts/load_balance.h on the CPU: the loss against its formula, the gradient
// against numeric differentiation in f64, the lower precisions against f64, and what the loss is
// when experts are loaded alike.

#include "kernels/experts/load_balance.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::load_balance {

constexpr double kScale = 0.125, kCoefficient = 0.75;

struct Case {
  int64_t t, e;
  RouterScoring scoring;
};

template <typename T>
struct Outputs {
  double loss;
  Array<T> dlogits;
};

// Without `sets`, all tokens are one set.
template <typename A, typename T>
Outputs<T> Compute(const Array<double>& logits64, const Array<double>& counts,
                   RouterScoring scoring, int threads = 2, SampleRows sets = {0, 0}) {
  const auto logits = Converted<A>(logits64);
  if (sets.per_sample == 0) sets.per_sample = logits.shape.rows();
  Outputs<T> out{0, Poison<T>(logits.shape)};
  StepState state{.loss_scale = 4 * kScale, .counted_share = 0.25, .loss = 5};
  Call(LoadBalanceForwardArgs{.logits = logits,
                              .counts = counts,
                              .sets = sets,
                              .scoring = scoring,
                              .coefficient = kCoefficient,
                              .state = &state},
       threads);
  Call(LoadBalanceBackwardArgs{.logits = logits,
                               .counts = counts,
                               .sets = sets,
                               .scoring = scoring,
                               .coefficient = kCoefficient,
                               .state = &state,
                               .dlogits = out.dlogits},
       threads);
  EXPECT_EQ(state.loss, 5);  // The language model's loss is another.
  out.loss = state.auxiliary_loss;
  return out;
}

class LoadBalanceTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    for (int64_t e = 0; e < GetParam().e; ++e) counts.v[size_t(e)] = double((e * 7 + 3) % 11);
  }
  Array<double> logits = Normal<double>({GetParam().t, GetParam().e}, 1);
  Array<double> counts = Zeros<double>({GetParam().e});
};

double Loss(const Array<double>& logits, const Array<double>& counts, RouterScoring scoring) {
  const int64_t tokens = logits.shape[0], experts = logits.shape[1];
  double want = 0, chosen = 0;
  for (const double count : counts.v) chosen += count;
  for (int64_t t = 0; t < tokens; ++t) {
    double sum = 0, term = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const double x = logits.v[size_t(t * experts + e)];
      const double s = scoring == RouterScoring::kSoftmax ? std::exp(x) : 1 / (1 + std::exp(-x));
      sum += s;
      term += s * counts.v[size_t(e)] / chosen;
    }
    want += term / sum;
  }
  return want * kCoefficient * double(experts) * kScale;
}

TEST_P(LoadBalanceTest, LossIsTheScaledSumOfFractionsTimesProbabilities) {
  const double want = Loss(logits, counts, GetParam().scoring);
  const auto got = Compute<double, double>(logits, counts, GetParam().scoring);
  EXPECT_NEAR(got.loss, want, 1e-12 * want);
}

TEST_P(LoadBalanceTest, BackwardMatchesNumericGradient) {
  const RouterScoring scoring = GetParam().scoring;
  const auto loss = [&] { return Compute<double, double>(logits, counts, scoring).loss; };
  const auto got = Compute<double, double>(logits, counts, scoring).dlogits.v;
  if (GetParam().e > 1) return ExpectGradient(got, logits.v, loss, 1e-8);
  for (const double d : got) EXPECT_NEAR(d, 0, 1e-12);  // The only expert's probability is 1.
}

template <typename T>
void ExpectAgreesWithF64(const Array<double>& exact, const Array<double>& counts,
                         RouterScoring scoring) {
  const auto logits = RoundedTo<float>(exact);
  const auto got = Compute<float, T>(logits, counts, scoring);
  const auto want = Compute<double, double>(logits, counts, scoring);
  const int64_t experts = logits.shape[1];
  EXPECT_NEAR(got.loss, want.loss, Tolerance(DType::kF32, experts) * want.loss);
  // Differences of two numbers of their size: as far from the exact one as those are.
  double norm = 0, difference = 0;
  for (size_t i = 0; i < want.dlogits.v.size(); ++i) {
    difference += std::pow(double(got.dlogits.v[i]) - want.dlogits.v[i], 2);
    norm += std::pow(kCoefficient * kScale, 2);
  }
  EXPECT_LE(std::sqrt(difference), Tolerance(DTypeOf<T>::value, experts) * std::sqrt(norm));
}

TEST_P(LoadBalanceTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(logits, counts, GetParam().scoring);
  ExpectAgreesWithF64<bf16>(logits, counts, GetParam().scoring);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LoadBalanceTest,
    ::testing::Values(Case{1, 1, RouterScoring::kSoftmax}, Case{4, 7, RouterScoring::kSoftmax},
                      Case{70, 5, RouterScoring::kSoftmax}, Case{3, 1, RouterScoring::kSigmoid},
                      Case{4, 7, RouterScoring::kSigmoid}, Case{5, 33, RouterScoring::kSigmoid}));

// So many experts that one token's fill a GPU's shared memory.
TEST(LoadBalance, OfManyExpertsIsWhatTheFormulaSays) {
  const auto logits = Normal<double>({3, 3'000}, 1), counts = Filled<double>({3'000}, 2);
  ExpectAgreesWithF64<float>(logits, counts, RouterScoring::kSigmoid);
  const auto got = Compute<double, double>(logits, counts, RouterScoring::kSigmoid);
  const double want = Loss(logits, counts, RouterScoring::kSigmoid);
  EXPECT_NEAR(got.loss, want, 1e-12 * want);
}

// More tokens than a GPU takes at once: the same few again and again.
TEST(LoadBalance, TokensDoNotDependOnEachOther) {
  constexpr int64_t kFew = 9, kMany = 9'000, kExperts = 4;
  const auto few = Normal<double>({kFew, kExperts}, 1);
  const Array<double> counts = {{kExperts}, {1, 0, 4, 2}};
  auto many = Zeros<double>({kMany, kExperts});
  for (size_t i = 0; i < many.v.size(); ++i) many.v[i] = few.v[i % few.v.size()];
  const auto want = Compute<double, double>(few, counts, RouterScoring::kSoftmax);
  const auto got = Compute<double, double>(many, counts, RouterScoring::kSoftmax);
  EXPECT_NEAR(got.loss, want.loss * (kMany / kFew), 1e-12 * got.loss);
  for (size_t i = 0; i < many.v.size(); ++i) {
    ASSERT_EQ(got.dlogits.v[i], want.dlogits.v[i % few.v.size()]) << i;
  }
}

// With scales of 1 / tokens the loss is the coefficient, and nothing pulls at the logits.
TEST(LoadBalance, OfExpertsLoadedAlikeIsTheCoefficient) {
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    const auto got =
        Compute<double, double>(Normal<double>({8, 5}, 1), Filled<double>({5}, 3), scoring);
    EXPECT_NEAR(got.loss, kCoefficient, 1e-12);
    for (const double d : got.dlogits.v) EXPECT_NEAR(d, 0, 1e-15);
  }
}

TEST(LoadBalance, MicroBatchesAddUp) {
  const auto logits = Normal<double>({4, 7}, 1), counts = Filled<double>({7}, 2);
  StepState state{.loss_scale = kScale};
  const LoadBalanceForwardArgs args{.logits = logits,
                                    .counts = counts,
                                    .sets = {0, 4},
                                    .scoring = RouterScoring::kSoftmax,
                                    .coefficient = kCoefficient,
                                    .state = &state};
  Call(args);
  const double one = state.auxiliary_loss;
  Call(args);
  EXPECT_DOUBLE_EQ(state.auxiliary_loss, 2 * one);
}

TEST(LoadBalance, CountsChoices) {
  const Array<int32_t> experts = {{3, 2}, {1, 3, 3, 0, 3, 1}};
  auto counts = Poison<double>({5});
  Call(LoadBalanceCountsArgs{.experts = experts, .sets = {0, 3}, .counts = counts});
  EXPECT_EQ(counts.v, (std::vector<double>{1, 2, 0, 3, 0}));

  const auto many = Indices({5000, 3}, 300, 1);
  auto got = Poison<double>({301}), want = Zeros<double>({301});
  for (const int32_t expert : many.v) ++want.v[size_t(expert)];
  Call(LoadBalanceCountsArgs{.experts = many, .sets = {0, 5000}, .counts = got});
  EXPECT_EQ(got.v, want.v);
}

// The tokens 2 to 8 of three sets with four tokens each: loss and gradients are those of the sets'
// parts one by one. Catches the fractions of a neighbouring set.
TEST(LoadBalance, OfSeveralSetsIsTheSumOfTheirLosses) {
  const auto logits = Normal<double>({7, 5}, 1);
  const Array<double> counts = {{3, 5}, {1, 0, 4, 2, 2, 9, 1, 3, 0, 0, 2, 2, 2, 1, 8}};
  const struct { int64_t begin, end; } parts[] = {{0, 2}, {2, 6}, {6, 7}};
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    const auto got = Compute<double, double>(logits, counts, scoring, 2, {2, 4});
    double loss = 0;
    std::vector<double> dlogits;
    for (int64_t set = 0; set < 3; ++set) {
      const auto [begin, end] = parts[set];
      const auto part = [](const std::vector<double>& v, int64_t from, int64_t to) {
        return Array<double>{{to - from, 5}, {v.begin() + from * 5, v.begin() + to * 5}};
      };
      const auto want = Compute<double, double>(part(logits.v, begin, end),
                                                part(counts.v, set, set + 1), scoring);
      loss += want.loss;
      dlogits.insert(dlogits.end(), want.dlogits.v.begin(), want.dlogits.v.end());
    }
    EXPECT_NEAR(got.loss, loss, 1e-14);
    EXPECT_EQ(got.dlogits.v, dlogits);
  }
}

TEST(LoadBalance, CountsTheChoicesOfEachSet) {
  const Array<int32_t> experts = {{5, 2}, {1, 3, 3, 0, 3, 1, 2, 2, 0, 1}};
  auto counts = Poison<double>({4, 4});  // Of the first and the last set there is no token here.
  Call(LoadBalanceCountsArgs{.experts = experts, .sets = {5, 3}, .counts = counts});
  EXPECT_EQ(counts.v, (std::vector<double>{0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 2, 2, 1, 1, 0, 0}));
}

TEST(LoadBalance, GradientMayReplaceTheLogits) {
  auto logits = Normal<double>({4, 7}, 1);
  Array<double> counts = {{7}, {1, 0, 4, 2, 2, 9, 1}};
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    const auto want = Compute<double, double>(logits, counts, scoring).dlogits.v;
    const StepState state{.loss_scale = kScale};
    Call(LoadBalanceBackwardArgs{.logits = logits,
                                 .counts = counts,
                                 .sets = {0, 4},
                                 .scoring = scoring,
                                 .coefficient = kCoefficient,
                                 .state = &state,
                                 .dlogits = logits});
    EXPECT_EQ(logits.v, want);
  }
}

TEST(LoadBalance, ExtremeLogitsStayFinite) {
  const Array<double> logits = {{2, 3}, {500, -500, 0, -200, -200, -200}};
  const auto counts = Filled<double>({3}, 1);
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    const auto got = Compute<float, float>(logits, counts, scoring);
    EXPECT_TRUE(std::isfinite(got.loss));
    for (const float d : got.dlogits.v) EXPECT_TRUE(std::isfinite(d));
  }
}

TEST(LoadBalance, ThreadsDoNotChangeBits) {
  const auto logits = Normal<double>({300, 64}, 1);
  auto counts = Filled<double>({64}, 1);
  counts.v[3] = 9;
  const auto one = Compute<float, float>(logits, counts, RouterScoring::kSoftmax, 1);
  const auto three = Compute<float, float>(logits, counts, RouterScoring::kSoftmax, 3);
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_EQ(one.dlogits.v, three.dlogits.v);
}

TEST(LoadBalanceDeathTest, NamesWhatDoesNotFit) {
  const auto logits = Zeros<double>({2, 3});
  const auto run = [&](const Array<double>& counts) {
    Compute<double, double>(logits, counts, RouterScoring::kSoftmax);
  };
  EXPECT_DEATH(run(Zeros<double>({3})), "load_balance counts: none of 3 experts was chosen");
  EXPECT_DEATH(run(Zeros<double>({4})), "load_balance counts: wanted f64 .1, 3.");
  const Array<int32_t> experts = {{1, 2}, {0, 3}};
  auto counts = Zeros<double>({3});
  EXPECT_DEATH(Call(LoadBalanceCountsArgs{.experts = experts, .sets = {0, 3}, .counts = counts}),
               "load_balance experts: expert 3 at 1 of 3");
}

}  // namespace trainyard::testing::load_balance
