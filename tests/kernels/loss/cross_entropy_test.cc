// Proves kernels/loss/cross_entropy.h on the CPU: loss against its definition, gradient against
// numeric differentiation in f64, the lower precisions against f64.

#include "kernels/loss/cross_entropy.h"

#include <cmath>
#include <type_traits>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::cross_entropy {

constexpr double kScale = 0.125;

// Targets with every third token not counted.
Array<int32_t> Targets(int64_t tokens, int64_t vocab) {
  auto targets = Indices({tokens}, int32_t(vocab), 5);
  for (int64_t t = 2; t < tokens; t += 3) targets.v[t] = -1;
  return targets;
}

// L: the dtype of logits, T: that of their gradient.
template <typename L, typename T>
struct Outputs {
  double loss;
  Array<Accumulate<L>> lse;
  Array<T> dlogits;
};

template <typename L, typename T>
Outputs<L, T> Compute(const Array<double>& logits64, const Array<int32_t>& targets,
                      int threads = 2) {
  const auto logits = Converted<L>(logits64);
  StepState state{.loss_scale = kScale};
  Outputs<L, T> out{0, Poison<Accumulate<L>>({logits.shape[0]}), Poison<T>(logits.shape)};
  Call(
      CrossEntropyForwardArgs{
          .logits = logits, .targets = targets, .lse = out.lse, .state = &state},
      threads);
  Call(CrossEntropyBackwardArgs{.logits = logits,
                                .targets = targets,
                                .lse = out.lse,
                                .state = &state,
                                .dlogits = out.dlogits},
       threads);
  out.loss = state.loss;
  return out;
}

// The same by one call. The gradient takes the place of logits of its dtype. Logits that are not
// counted are NaN, since nobody may read them.
template <typename L, typename T>
Outputs<L, T> ComputeTogether(const Array<double>& logits64, const Array<int32_t>& targets,
                              const VocabSlice& slice = {}) {
  auto logits = Converted<L>(logits64);
  const int64_t columns = logits.shape[1];
  for (int64_t i = 0; i < logits.shape.elements(); ++i) {
    if (targets.v[i / columns] < 0) logits.v[i] = L(NAN);
  }
  StepState state{.loss_scale = kScale};
  Outputs<L, T> out{0, Poison<Accumulate<L>>({logits.shape[0]}), Poison<T>(logits.shape)};
  constexpr bool kInPlace = std::is_same_v<L, T>;
  Tensor dlogits = out.dlogits;
  if (kInPlace) dlogits = logits;
  Call(CrossEntropyForwardArgs{.logits = logits,
                               .targets = targets,
                               .lse = out.lse,
                               .state = &state,
                               .slice = slice,
                               .dlogits = dlogits});
  if constexpr (kInPlace) out.dlogits = logits;
  out.loss = state.loss;
  return out;
}

// The same by ranks that each hold a slice of the columns. The loss is the sum of theirs, dlogits
// stand side by side.
template <typename L, typename T, typename A = Accumulate<L>>
Outputs<L, T> ComputeSliced(const Array<double>& logits64, const Array<int32_t>& targets,
                            int64_t ranks) {
  const int64_t rows = logits64.shape[0], vocab = logits64.shape[1];
  const auto first = [&](int64_t rank) { return vocab * rank / ranks; };
  std::vector<Array<L>> logits;
  auto statistics = Poison<A>({ranks, rows, 3});
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t columns = first(rank + 1) - first(rank);
    logits.push_back(Poison<L>({rows, columns}));
    for (int64_t i = 0; i < rows * columns; ++i) {
      logits[rank].v[i] = L(logits64.v[i / columns * vocab + first(rank) + i % columns]);
    }
    auto mine = Poison<A>({rows, 3});
    Call(CrossEntropyStatisticsArgs{.logits = logits[rank],
                                    .targets = targets,
                                    .slice = {.first = first(rank), .vocab = vocab},
                                    .statistics = mine});
    std::copy(mine.v.begin(), mine.v.end(), statistics.v.begin() + rank * rows * 3);
  }
  Outputs<L, T> all{0, {}, Poison<T>(logits64.shape)};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    StepState state{.loss_scale = kScale};
    all.lse = Poison<A>({rows});
    const int64_t loss_begin = rows * rank / ranks;
    Call(CrossEntropyCombineArgs{.statistics = statistics,
                                 .targets = targets,
                                 .loss_begin = loss_begin,
                                 .loss_rows = rows * (rank + 1) / ranks - loss_begin,
                                 .lse = all.lse,
                                 .state = &state});
    all.loss += state.loss;
    const int64_t columns = logits[rank].shape[1];
    auto dlogits = Poison<T>({rows, columns});
    Call(CrossEntropyBackwardArgs{.logits = logits[rank],
                                  .targets = targets,
                                  .lse = all.lse,
                                  .state = &state,
                                  .dlogits = dlogits,
                                  .slice = {.first = first(rank), .vocab = vocab}});
    for (int64_t i = 0; i < rows * columns; ++i) {
      all.dlogits.v[i / columns * vocab + first(rank) + i % columns] = dlogits.v[i];
    }
  }
  return all;
}

struct Size {
  int64_t t, v;
};
class CrossEntropyTest : public ::testing::TestWithParam<Size> {
 protected:
  Array<double> logits = Normal<double>({GetParam().t, GetParam().v}, 1);
  Array<int32_t> targets = Targets(GetParam().t, GetParam().v);
};

void ExpectTheScaledSumOfCountedTokens(const Array<double>& logits, const Array<int32_t>& targets) {
  const int64_t tokens = logits.shape[0], vocab = logits.shape[1];
  double want = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits.v[t * vocab + v]);
    if (targets.v[t] >= 0) want += std::log(sum) - logits.v[t * vocab + targets.v[t]];
  }
  EXPECT_NEAR((Compute<double, double>(logits, targets).loss), kScale * want, 1e-12 * (1 + want));
}

TEST_P(CrossEntropyTest, LossIsTheScaledSumOfCountedTokens) {
  ExpectTheScaledSumOfCountedTokens(logits, targets);
}

// Row by row: the loss is the sum of theirs, as the test above shows.
TEST_P(CrossEntropyTest, BackwardMatchesNumericGradient) {
  const auto [tokens, vocab] = GetParam();
  std::vector<double> want;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto begin = logits.v.begin() + t * vocab;
    Array<double> row = {{1, vocab}, {begin, begin + vocab}};
    const auto of_row = NumericGrad(row.v, [&] {
      return Compute<double, double>(row, {{1}, {targets.v[t]}}).loss;
    });
    want.insert(want.end(), of_row.begin(), of_row.end());
  }
  ExpectClose(Compute<double, double>(logits, targets).dlogits.v, want, 1e-8);
}

// On one rank, and on two that divide the columns.
TEST_P(CrossEntropyTest, LogProbabilitiesAndTheirGradientAreThoseOfTheLoss) {
  const auto [rows, vocab] = GetParam();
  const auto loss = Compute<double, double>(logits, targets);
  StepState state{.loss_scale = kScale};
  auto lse = Poison<double>({rows}), log_probs = lse, combined = lse;
  auto dlogits = Poison<double>({rows, vocab});
  Call(CrossEntropyForwardArgs{
      .logits = logits, .targets = targets, .lse = lse, .state = &state, .log_probs = log_probs});
  auto statistics = Poison<double>({1, rows, 3});
  Call(CrossEntropyStatisticsArgs{.logits = logits,
                                  .targets = targets,
                                  .slice = {.first = 0, .vocab = vocab},
                                  .statistics = statistics});
  Call(CrossEntropyCombineArgs{.statistics = statistics,
                               .targets = targets,
                               .loss_begin = 0,
                               .loss_rows = rows,
                               .lse = lse,
                               .state = &state,
                               .log_probs = combined});
  EXPECT_EQ(state.loss, 0);
  double sum = 0;
  for (int64_t t = 0; t < rows; ++t) {
    const bool counted = targets.v[t] >= 0;
    const double want = counted ? logits.v[t * vocab + targets.v[t]] - lse.v[t] : 0;
    EXPECT_NEAR(log_probs.v[t], want, 1e-13) << t;
    EXPECT_NEAR(combined.v[t], want, 1e-13) << t;
    sum += log_probs.v[t];
  }
  EXPECT_NEAR(loss.loss, -kScale * sum, 1e-12 * (1 + loss.loss));
  Call(CrossEntropyBackwardArgs{.logits = logits,
                                .targets = targets,
                                .lse = loss.lse,
                                .state = &state,
                                .dlogits = dlogits,
                                .dlog_probs = Filled<double>({rows}, -kScale)});
  EXPECT_EQ(dlogits.v, loss.dlogits.v);
}

template <typename L>
constexpr DType kStatistic = DTypeOf<Accumulate<L>>::value;

// By two calls, and by one. Statistics of bf16 logits are f32's.
template <typename L, typename T>
void ExpectAgreesWithF64(const Array<double>& exact, const Array<int32_t>& targets) {
  const auto logits = RoundedTo<L>(exact);
  const auto want = Compute<double, double>(logits, targets);
  const int64_t vocab = logits.shape[1];
  const double sums = Tolerance(kStatistic<L>, vocab);
  const auto expect_gradient = [&](const Outputs<L, T>& got) {
    EXPECT_NEAR(got.loss, want.loss, sums * std::abs(want.loss));
    ExpectClose(Converted<double>(got.dlogits).v, want.dlogits.v,
                Tolerance(DTypeOf<T>::value, vocab));
  };
  const auto got = Compute<L, T>(logits, targets);
  ExpectClose(Converted<double>(got.lse).v, want.lse.v, sums);
  expect_gradient(got);
  expect_gradient(ComputeTogether<L, T>(logits, targets));
}

TEST_P(CrossEntropyTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float, float>(logits, targets);
  ExpectAgreesWithF64<float, bf16>(logits, targets);
  ExpectAgreesWithF64<bf16, bf16>(logits, targets);
}

TEST_P(CrossEntropyTest, OneCallGivesLossAndGradient) {
  const auto want = Compute<double, double>(logits, targets);
  const auto got = ComputeTogether<double, double>(logits, targets);
  EXPECT_NEAR(got.loss, want.loss, 1e-13 * want.loss);
  ExpectClose(got.dlogits.v, want.dlogits.v, 1e-13);
  const int64_t vocab = GetParam().v;
  for (size_t i = 0; i < got.dlogits.v.size(); ++i) {
    if (targets.v[i / size_t(vocab)] >= 0) continue;
    EXPECT_EQ(got.dlogits.v[i], 0) << i;
  }
}

template <typename L, typename T>
void ExpectSlicesAddUp(const Array<double>& exact, const Array<int32_t>& targets) {
  const auto logits = RoundedTo<L>(exact);
  const auto want = Compute<double, double>(logits, targets);
  const int64_t vocab = logits.shape[1];
  const double sums = Tolerance(kStatistic<L>, vocab);
  for (int64_t ranks = 1; ranks <= std::min<int64_t>(4, vocab); ++ranks) {
    SCOPED_TRACE(ranks);
    const auto got = ComputeSliced<L, T>(logits, targets, ranks);
    EXPECT_NEAR(got.loss, want.loss, sums * std::abs(want.loss));
    ExpectClose(Converted<double>(got.lse).v, want.lse.v, sums);
    ExpectClose(Converted<double>(got.dlogits).v, want.dlogits.v,
                Tolerance(DTypeOf<T>::value, vocab));
  }
}

// Losses of shares of the rows, too: 130 rows are not a multiple of 3 or 4 ranks, one row is less.
TEST_P(CrossEntropyTest, SlicesOfTheVocabularyAddUpToTheWhole) {
  ExpectSlicesAddUp<double, double>(logits, targets);
  ExpectSlicesAddUp<float, float>(logits, targets);
  ExpectSlicesAddUp<float, bf16>(logits, targets);
  ExpectSlicesAddUp<bf16, bf16>(logits, targets);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyTest,
                         ::testing::Values(Size{1, 2}, Size{4, 7}, Size{9, 131}, Size{5, 48},
                                           Size{130, 33}));

// More columns than one block of a GPU takes at once, in packs or one by one, and more rows than it
// has blocks.
TEST(CrossEntropy, WideAndManyRowsGiveLossAndGradient) {
  for (const auto& [tokens, vocab] : {Size{3, 8200}, Size{2, 1031}, Size{8500, 2}}) {
    const auto logits = Normal<double>({tokens, vocab}, 1);
    const auto targets = Targets(tokens, vocab);
    ExpectTheScaledSumOfCountedTokens(logits, targets);
    ExpectAgreesWithF64<float, float>(logits, targets);
    ExpectAgreesWithF64<float, bf16>(logits, targets);
    ExpectAgreesWithF64<bf16, bf16>(logits, targets);
  }
}

// Rows that are longer than a GPU's shared memory by fewer packs than a block has threads, and by
// several for each thread. Targets lie at the border, and behind it.
TEST(CrossEntropy, OneCallTakesRowsOfAnyLength) {
  for (const int64_t vocab : {60'008, 115'720, 160'008}) {
    SCOPED_TRACE(vocab);
    const auto logits = RoundedTo<bf16>(Normal<double>({4, vocab}, 1));
    const Array<int32_t> targets = {
        {4}, {int32_t(std::min<int64_t>(vocab, 115'712)) - 1, -1, int32_t(vocab) - 3, 8}};
    const auto want = Compute<double, double>(logits, targets);
    const auto got = ComputeTogether<bf16, bf16>(logits, targets);
    EXPECT_NEAR(got.loss, want.loss, Tolerance(DType::kF32, vocab) * want.loss);
    ExpectClose(Converted<double>(got.dlogits).v, want.dlogits.v, Tolerance(DType::kBF16, vocab));
    // Each by itself, too: in the norm, the gradients of targets hide all others.
    for (size_t i = 0; i < want.dlogits.v.size(); ++i) {
      const double exact = want.dlogits.v[i];
      ASSERT_NEAR(double(got.dlogits.v[i]), exact, Tolerance(DType::kBF16, 1) * std::abs(exact))
          << i;
    }
  }
}

TEST(CrossEntropy, MicroBatchesAddUp) {
  const auto logits = Normal<double>({4, 7}, 1);
  const auto targets = Targets(4, 7);
  auto lse = Poison<double>({4});
  StepState state{.loss_scale = kScale};
  for (int i = 0; i < 2; ++i) {
    Call(
        CrossEntropyForwardArgs{.logits = logits, .targets = targets, .lse = lse, .state = &state});
  }
  EXPECT_DOUBLE_EQ(state.loss, 2 * (Compute<double, double>(logits, targets).loss));
}

TEST(CrossEntropy, GradientMayReplaceTheLogits) {
  auto logits = Normal<double>({4, 7}, 1);
  const auto targets = Targets(4, 7);
  const auto want = Compute<double, double>(logits, targets);
  const StepState state{.loss_scale = kScale};
  Call(CrossEntropyBackwardArgs{
      .logits = logits, .targets = targets, .lse = want.lse, .state = &state, .dlogits = logits});
  EXPECT_EQ(logits.v, want.dlogits.v);
}

// The columns' content must not matter, so it is NaN. Packs of a GPU end within the padding, too.
template <typename L, typename T>
void ExpectPaddingIsNotThere(int64_t tokens, int64_t vocab, int64_t padding) {
  using A = Accumulate<L>;
  const auto exact = RoundedTo<L>(Normal<double>({tokens, vocab}, 1));
  const auto targets = Targets(tokens, vocab);
  const auto want = Compute<L, T>(exact, targets);
  const int64_t columns = vocab + padding;
  const VocabSlice slice = {.padding = padding};
  auto padded = Filled<double>({tokens, columns}, NAN);
  for (int64_t i = 0; i < tokens * vocab; ++i) {
    padded.v[i / vocab * columns + i % vocab] = exact.v[i];
  }
  const auto expect = [&](double loss, const Array<T>& dlogits) {
    EXPECT_NEAR(loss, want.loss, Tolerance(kStatistic<L>, vocab) * std::abs(want.loss));
    for (int64_t i = 0; i < tokens * columns; ++i) {
      const int64_t t = i / columns, v = i % columns;
      if (v >= vocab) {
        EXPECT_EQ(double(dlogits.v[i]), 0) << t << ", " << v;
      } else {
        EXPECT_NEAR(double(dlogits.v[i]), double(want.dlogits.v[t * vocab + v]), 1e-3);
      }
    }
  };
  const auto logits = Converted<L>(padded);
  StepState state{.loss_scale = kScale};
  auto lse = Poison<A>({tokens});
  auto dlogits = Poison<T>({tokens, columns});
  auto statistics = Poison<A>({tokens, 3});
  Call(CrossEntropyForwardArgs{
      .logits = logits, .targets = targets, .lse = lse, .state = &state, .slice = slice});
  Call(CrossEntropyStatisticsArgs{
      .logits = logits, .targets = targets, .slice = slice, .statistics = statistics});
  Call(CrossEntropyBackwardArgs{.logits = logits,
                                .targets = targets,
                                .lse = lse,
                                .state = &state,
                                .dlogits = dlogits,
                                .slice = slice});
  expect(state.loss, dlogits);
  const auto together = ComputeTogether<L, T>(padded, targets, slice);
  expect(together.loss, together.dlogits);
  for (int64_t t = 0; t < tokens; ++t) {
    EXPECT_NEAR(double(statistics.v[t * 3] + std::log(statistics.v[t * 3 + 1])),
                double(want.lse.v[t]), 1e-5 * std::abs(double(want.lse.v[t])));
  }
}

TEST(CrossEntropy, PaddingHasNoProbabilityAndNoGradient) {
  for (const auto& [vocab, padding] : {std::pair{13, 3}, {5, 3}, {8, 8}, {7, 1}, {2050, 46}}) {
    SCOPED_TRACE(vocab);
    ExpectPaddingIsNotThere<double, double>(5, vocab, padding);
    ExpectPaddingIsNotThere<float, float>(5, vocab, padding);
    ExpectPaddingIsNotThere<float, bf16>(5, vocab, padding);
    ExpectPaddingIsNotThere<bf16, bf16>(5, vocab, padding);
  }
}

// exp(500) overflows; the largest logit must be taken out first.
TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Array<double> logits = {{1, 3}, {500, 499, -500}};
  const double want = kScale * (1 + std::log1p(std::exp(-1.0)));
  EXPECT_NEAR((Compute<float, float>(logits, {{1}, {1}}).loss), want, 1e-4);
  EXPECT_NEAR((ComputeSliced<float, float>(logits, {{1}, {1}}, 3).loss), want, 1e-4);
  EXPECT_NEAR((ComputeTogether<float, float>(logits, {{1}, {1}}).loss), want, 1e-4);
  // bf16 has no 499, but 500 and 498.
  const Array<double> rounded = {{1, 8}, {500, 498, -500, -500, -500, -500, -500, -500}};
  EXPECT_NEAR((ComputeTogether<bf16, bf16>(rounded, {{1}, {1}}).loss),
              kScale * (2 + std::log1p(std::exp(-2.0))), 1e-4);
}

TEST(CrossEntropy, LogitsThatAreNotFiniteMakeTheLossNotFinite) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    const Array<double> logits = {{1, 3}, {1, bad, 2}};
    EXPECT_FALSE(std::isfinite((Compute<float, float>(logits, {{1}, {0}}).loss)));
    EXPECT_FALSE(std::isfinite((ComputeSliced<float, float>(logits, {{1}, {0}}, 3).loss)));
    EXPECT_FALSE(std::isfinite((ComputeTogether<float, float>(logits, {{1}, {0}}).loss)));
    EXPECT_FALSE(std::isfinite((ComputeTogether<bf16, bf16>(logits, {{1}, {0}}).loss)));
  }
}

TEST(CrossEntropy, ThreadsDoNotChangeBits) {
  const auto logits = Normal<double>({130, 300}, 1);
  const auto targets = Targets(130, 300);
  const auto one = Compute<float, float>(logits, targets, 1);
  const auto three = Compute<float, float>(logits, targets, 3);
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_EQ(one.dlogits.v, three.dlogits.v);
}

TEST(CrossEntropyDeathTest, NamesATargetOutOfRange) {
  const auto logits = Zeros<double>({2, 3});
  EXPECT_DEATH((Compute<float, float>(logits, {{2}, {0, 3}})),
               "target 3 at 1, the vocabulary has 3");
  EXPECT_DEATH((Compute<float, float>(logits, {{2}, {-2, 0}})), "target -2 at 0");
  EXPECT_DEATH((ComputeTogether<bf16, bf16>(logits, {{2}, {0, 3}})),
               "target 3 at 1, the vocabulary has 3");
  EXPECT_DEATH((ComputeTogether<bf16, bf16>(logits, {{2}, {-2, 0}})), "target -2 at 0");
}

TEST(CrossEntropyDeathTest, ChecksTargetsAgainstTheWholeVocabulary) {
  const auto logits = Zeros<float>({1, 3});
  auto statistics = Zeros<float>({1, 3});
  const auto run = [&](int32_t target, const VocabSlice& slice) {
    const Array<int32_t> targets = {{1}, {target}};
    Call(CrossEntropyStatisticsArgs{
        .logits = logits, .targets = targets, .slice = slice, .statistics = statistics});
  };
  run(6, {.first = 3, .vocab = 7});
  EXPECT_DEATH(run(7, {.first = 3, .vocab = 7}), "target 7 at 0, the vocabulary has 7");
  EXPECT_DEATH(run(0, {.first = 5, .vocab = 7}), "slice: ids 5 to 8 of a vocabulary of 7");
  run(6, {.first = 5, .vocab = 7, .padding = 1});
  EXPECT_DEATH(run(0, {.first = 7, .vocab = 7, .padding = 3}), "slice: padding 3 of 3");
}

TEST(CrossEntropyDeathTest, NamesTheStatisticsAndRowsThatDoNotFit) {
  const Array<int32_t> targets = {{2}, {0, 1}};
  auto lse = Zeros<float>({2});
  StepState state;
  const auto run = [&](const Array<float>& statistics, int64_t loss_begin, int64_t loss_rows) {
    Call(CrossEntropyCombineArgs{.statistics = statistics,
                                 .targets = targets,
                                 .loss_begin = loss_begin,
                                 .loss_rows = loss_rows,
                                 .lse = lse,
                                 .state = &state});
  };
  EXPECT_DEATH(run(Zeros<float>({2, 3}), 0, 2), "statistics: wanted \\[ranks, 2, 3\\]");
  EXPECT_DEATH(run(Zeros<float>({4, 3, 3}), 0, 2), "statistics: wanted \\[ranks, 2, 3\\]");
  EXPECT_DEATH(run(Zeros<float>({4, 2, 3}), 1, 2), "loss_begin: 2 rows from 1 of 2");
}

TEST(CrossEntropyDeathTest, NamesTheArgumentOfWrongShape) {
  const auto logits = Zeros<float>({2, 3});
  const Array<int32_t> targets = {{2}, {0, 1}};
  auto lse = Zeros<float>({3});
  StepState state;
  EXPECT_DEATH(Call(CrossEntropyForwardArgs{
                   .logits = logits, .targets = targets, .lse = lse, .state = &state}),
               "cross_entropy lse: wanted f32 with 2 elements");
}

TEST(CrossEntropyDeathTest, HasNoGradientOfLogProbabilitiesYet) {
  auto logits = Zeros<float>({2, 3}), lse = Zeros<float>({2}), log_probs = lse;
  const Array<int32_t> targets = {{2}, {0, 1}};
  StepState state;
  EXPECT_DEATH(Call(CrossEntropyForwardArgs{.logits = logits,
                                            .targets = targets,
                                            .lse = lse,
                                            .state = &state,
                                            .log_probs = log_probs,
                                            .dlogits = logits}),
               "dlogits: that of log-probabilities is not known before they are");
}

}  // namespace trainyard::testing::cross_entropy
