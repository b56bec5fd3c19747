// Proves kernels/elementwise/dropout.h: which elements are kept follows from their global numbers
// alone, in the right proportion and independently; what is kept is scaled; the gradient is the
// same function.

#include "kernels/elementwise/dropout.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::dropout {

constexpr DropoutPlace kPlace = {.probability = 0.3, .stream = 11};
constexpr StepState kState{.step = 4, .seed = 9};

// Of `samples` samples from number `first` on, with `sequence` rows each.
Array<int32_t> Numbers(int64_t samples, int64_t sequence, int64_t first = 0) {
  Array<int32_t> numbers = Zeros<int32_t>({samples * sequence});
  for (int64_t row = 0; row < samples * sequence; ++row) {
    numbers.v[size_t(row)] = int32_t(first + row / sequence);
  }
  return numbers;
}

template <typename T>
Array<T> Dropped(const Array<T>& x, const Array<int32_t>& samples, const SequencePart& part,
                 int64_t first_row = 0, const StepState& state = kState, int threads = 2) {
  auto y = Poison<T>(x.shape);
  Call(DropoutArgs{.x = x,
                   .samples = samples,
                   .part = part,
                   .first_row = first_row,
                   .place = kPlace,
                   .state = &state,
                   .y = y},
       threads);
  return y;
}

// 7 in 10 of 120,000 elements, with a deviation of 0.0013; the mean of ones stays one.
TEST(Dropout, KeepsItsShareAndTheMean) {
  const auto y = Dropped(Filled<double>({600, 200}, 1), Numbers(6, 100), {.rows = 100});
  double kept = 0, sum = 0, both = 0;
  for (size_t i = 0; i < y.v.size(); ++i) {
    EXPECT_TRUE(y.v[i] == 0 || std::abs(y.v[i] - 1 / 0.7) < 1e-15) << y.v[i];
    kept += y.v[i] > 0 ? 1 : 0;
    both += y.v[i] > 0 && y.v[(i + 200) % y.v.size()] > 0 ? 1 : 0;  // With the next row's element.
    sum += y.v[i];
  }
  const double count = double(y.v.size());
  EXPECT_NEAR(kept / count, 0.7, 0.006);
  EXPECT_NEAR(both / count, 0.49, 0.008);
  EXPECT_NEAR(sum / count, 1, 0.009);
}

TEST(Dropout, StepSeedPlaceAndSampleChangeTheChoice) {
  const auto x = Filled<double>({40, 9}, 1);
  const auto samples = Numbers(1, 40);
  const SequencePart part{.rows = 40};
  const auto y = Dropped(x, samples, part);
  EXPECT_EQ(Dropped(x, samples, part).v, y.v);
  EXPECT_NE(Dropped(x, samples, part, 0, {.step = 5, .seed = 9}).v, y.v);
  EXPECT_NE(Dropped(x, samples, part, 0, {.step = 4, .seed = 8}).v, y.v);
  EXPECT_NE(Dropped(x, Numbers(1, 40, 1), part).v, y.v);
  auto other = Poison<double>(x.shape);
  Call(DropoutArgs{.x = x,
                   .samples = samples,
                   .part = part,
                   .place = {.probability = 0.3, .stream = 12},
                   .state = &kState,
                   .y = other});
  EXPECT_NE(other.v, y.v);
}

TEST(Dropout, WithoutAStepNothingIsDropped) {
  const auto x = Normal<float>({6, 5}, 1);
  EXPECT_EQ(Dropped(x, Numbers(1, 6), {.rows = 6}, 0, {.step = 0, .seed = 9}).v, x.v);
}

// Two samples of eight tokens on two context ranks, each of two tensor ranks. Catches a choice by
// the row on a rank.
TEST(Dropout, RanksTogetherDropWhatOneRankDrops) {
  constexpr int64_t kColumns = 24;
  const auto x = Normal<double>({16, kColumns}, 1);
  const auto want = Dropped(x, Numbers(2, 8, 3), {.rows = 8});
  for (int64_t context = 0; context < 2; ++context) {
    const SequencePart part{.rows = 4, .ranks = 2, .rank = context};
    for (int64_t tensor = 0; tensor < 2; ++tensor) {
      Array<double> mine = Zeros<double>({4, kColumns}), expected = mine;
      for (int64_t t = 0; t < 4; ++t) {
        const int64_t row = tensor * 4 + t, whole = row / 4 * 8 + part.position(row % 4);
        std::copy_n(x.v.begin() + whole * kColumns, kColumns, mine.v.begin() + t * kColumns);
        std::copy_n(want.v.begin() + whole * kColumns, kColumns, expected.v.begin() + t * kColumns);
      }
      EXPECT_EQ(Dropped(mine, Numbers(2, 4, 3), part, tensor * 4).v, expected.v);
    }
  }
}

// Three ranks have all rows of it, and eight of its columns each.
TEST(Dropout, RanksThatDivideColumnsDropWhatOneRankDrops) {
  constexpr int64_t kRows = 8, kColumns = 24, kMine = 8;
  const auto x = Normal<double>({kRows, kColumns}, 1);
  const auto samples = Numbers(2, 4, 3);
  const auto want = Dropped(x, samples, {.rows = 4});
  for (int64_t rank = 0; rank < 3; ++rank) {
    Array<double> mine = Zeros<double>({kRows, kMine}), expected = mine, y = mine;
    for (int64_t t = 0; t < kRows; ++t) {
      const int64_t from = t * kColumns + rank * kMine, to = t * kMine;
      std::copy_n(x.v.begin() + from, kMine, mine.v.begin() + to);
      std::copy_n(want.v.begin() + from, kMine, expected.v.begin() + to);
    }
    Call(DropoutArgs{.x = mine,
                     .samples = samples,
                     .part = {.rows = 4},
                     .first_column = rank * kMine,
                     .columns = kColumns,
                     .place = kPlace,
                     .state = &kState,
                     .y = y});
    EXPECT_EQ(y.v, expected.v);
  }
}

TEST(Dropout, BackwardIsTheSameFunctionOfTheGradient) {
  auto x = Normal<double>({6, 5}, 1);
  const auto dy = Normal<double>({6, 5}, 2);
  const auto samples = Numbers(2, 3);
  const auto want = NumericGrad(x.v, [&] { return Dot(Dropped(x, samples, {.rows = 3}), dy); });
  ExpectClose(Dropped(dy, samples, {.rows = 3}).v, want, 1e-8);
}

template <typename T>
void ExpectRoundedOnce() {
  // Whole packs of a row, and rows that end in the middle of one.
  for (const int64_t columns : {48, 41}) {
    const auto x = Normal<T>({30, columns}, 1);
    const auto samples = Numbers(3, 10);
    const auto exact = Dropped(Converted<double>(x), samples, {.rows = 10});
    const auto got = Dropped(x, samples, {.rows = 10}),
               one = Dropped(x, samples, {.rows = 10}, 0, kState, 1);
    for (size_t i = 0; i < x.v.size(); ++i) {
      using A = Accumulate<T>;
      const A want = exact.v[i] == 0 ? A(0) : A(T(A(x.v[i]) * A(1 / 0.7)));
      ASSERT_EQ(A(got.v[i]), want) << i;
      ASSERT_EQ(A(one.v[i]), want) << i;
    }
  }
}

TEST(Dropout, RoundsOnceInEachPrecision) {
  ExpectRoundedOnce<double>();
  ExpectRoundedOnce<float>();
  ExpectRoundedOnce<bf16>();
}

TEST(Dropout, OutputMayBeTheInput) {
  auto x = Normal<float>({6, 5}, 1);
  const auto samples = Numbers(1, 6);
  const auto want = Dropped(x, samples, {.rows = 6});
  Call(DropoutArgs{
      .x = x, .samples = samples, .part = {.rows = 6}, .place = kPlace, .state = &kState, .y = x});
  EXPECT_EQ(x.v, want.v);
}

TEST(DropoutDeathTest, NamesWhatDoesNotFit) {
  const auto x = Zeros<float>({6, 5});
  EXPECT_DEATH(Dropped(x, Numbers(1, 5), {.rows = 5}), "dropout first_row: 6 rows from 0 of 5");
  auto y = Zeros<float>({6, 5});
  EXPECT_DEATH(Call(DropoutArgs{.x = x,
                                .samples = Numbers(1, 6),
                                .part = {.rows = 6},
                                .place = {.probability = 1},
                                .state = &kState,
                                .y = y}),
               "dropout probability: 1, legal are 0 <= p < 1");
}

}  // namespace trainyard::testing::dropout
