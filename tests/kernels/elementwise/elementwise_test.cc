// Proves kernels/elementwise/add.h, fill.h, cast.h, positions.h and sum_slices.h on the CPU against
// their definitions.

#include "kernels/attention/positions.h"
#include "kernels/collective/reduce.h"
#include "kernels/elementwise/add.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/fill.h"
#include "kernels/sums/sum_slices.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::elementwise {

template <typename T>
void ExpectAdds() {
  const auto a = Normal<T>({3, 12345}, 1), b = Normal<T>({3, 12345}, 2);
  auto y = Poison<T>(a.shape);
  Call(AddArgs{.a = a, .b = b, .y = y});
  for (size_t i = 0; i < y.v.size(); ++i) {
    ASSERT_EQ(Accumulate<T>(y.v[i]), T(Accumulate<T>(a.v[i]) + Accumulate<T>(b.v[i])));
  }
}

TEST(Add, SumsElementByElementAndRoundsOnce) {
  ExpectAdds<double>();
  ExpectAdds<float>();
  ExpectAdds<bf16>();
}

TEST(Add, OutputMayBeTheFirstOperand) {
  Array<float> a = {{3}, {1, 2, 3}}, b = {{3}, {10, 20, 30}};
  Call(AddArgs{.a = a, .b = b, .y = a});
  EXPECT_EQ(a.v, (std::vector<float>{11, 22, 33}));
}

TEST(AddDeathTest, NamesTheArgumentOfWrongShape) {
  auto a = Zeros<float>({3}), b = Zeros<float>({4});
  auto doubles = Zeros<double>({3});
  EXPECT_DEATH(Call(AddArgs{.a = a, .b = b, .y = a}), "add b: wanted f32 with 3 elements");
  EXPECT_DEATH(Call(AddArgs{.a = a, .b = a, .y = doubles}), "add y: wanted f32");
}

template <typename T>
void ExpectSumsSlices(int64_t slices, int64_t n) {
  const auto x = Normal<T>({slices, n}, 1);
  auto y = Poison<T>({n}), want = Poison<T>({n});
  std::vector<const void*> parts;
  for (int64_t k = 0; k < slices; ++k) parts.push_back(x.v.data() + k * n);
  SumInRankOrder(parts, DTypeOf<T>::value, n, want.v.data());
  Call(SumSlicesArgs{.x = x, .y = y});
  for (size_t i = 0; i < y.v.size(); ++i) {
    ASSERT_EQ(Accumulate<T>(y.v[i]), Accumulate<T>(want.v[i])) << "at " << i;
  }
}

TEST(SumSlices, GivesTheBitsOfAReduceScatter) {
  for (const int64_t n : {12345, 12352}) {
    for (const int64_t slices : {1, 2, 3, 8}) {
      ExpectSumsSlices<double>(slices, n);
      ExpectSumsSlices<float>(slices, n);
      ExpectSumsSlices<bf16>(slices, n);
    }
  }
}

TEST(SumSlicesDeathTest, NamesWhatIsNoWholeNumberOfSlices) {
  auto x = Zeros<float>({2, 4}), y = Zeros<float>({3});
  EXPECT_DEATH(Call(SumSlicesArgs{.x = x, .y = y}), "sum_slices x: \\[2, 4\\] is no whole number");
}

template <typename T>
void ExpectFills(int64_t n) {
  auto y = Poison<T>({n});
  Call(FillArgs{.y = y, .value = -1.5});
  for (const T& x : y.v) ASSERT_EQ(Accumulate<T>(x), -1.5);
}

// Lengths that 16 bytes divide and those that they do not; the last is beyond one grid of a GPU.
TEST(Fill, SetsAnyNumberOfElements) {
  for (const int64_t n : {1, 64, 1001, 300001}) {
    ExpectFills<double>(n);
    ExpectFills<float>(n);
    ExpectFills<bf16>(n);
  }
}

TEST(Fill, SetsEveryElement) {
  auto f = Poison<float>({70001});
  auto h = Poison<bf16>({5});
  Call(FillArgs{.y = f, .value = 0.25});
  Call(FillArgs{.y = h, .value = 3});
  EXPECT_EQ(f.v, std::vector<float>(70001, 0.25f));
  for (bf16 x : h.v) EXPECT_EQ(float(x), 3.0f);
}

TEST(Cast, RoundsToNearestEvenAndKeepsSpecialValues) {
  const Array<float> x = {{6}, {1.0f, 1.00390625f, 1.01171875f, -INFINITY, NAN, 3.4e38f}};
  auto y = Poison<bf16>({6});
  Call(CastArgs{.x = x, .y = y});
  EXPECT_EQ(float(y.v[0]), 1.0f);
  EXPECT_EQ(float(y.v[1]), 1.0f);       // Half way between 1 and 1.0078125: to the even one.
  EXPECT_EQ(float(y.v[2]), 1.015625f);  // Half way again, and the even one is above.
  EXPECT_EQ(float(y.v[3]), -INFINITY);
  EXPECT_TRUE(std::isnan(float(y.v[4])));
  EXPECT_EQ(float(y.v[5]), INFINITY);  // Nearest to 3.4e38 is beyond bf16's largest.
}

TEST(Cast, WideningIsExact) {
  const auto x = Normal<bf16>({3, 71}, 1);
  auto y = Poison<float>(x.shape);
  auto z = Poison<double>(x.shape);
  Call(CastArgs{.x = x, .y = y});
  Call(CastArgs{.x = y, .y = z});
  for (size_t i = 0; i < x.v.size(); ++i) EXPECT_EQ(z.v[i], double(float(x.v[i])));
}

template <typename From, typename To>
void ExpectCasts(int64_t columns) {
  const auto x = Normal<From>({3, columns}, 1);
  auto y = Poison<To>(x.shape);
  Call(CastArgs{.x = x, .y = y});
  for (size_t i = 0; i < x.v.size(); ++i) {
    ASSERT_EQ(Accumulate<To>(y.v[i]), Accumulate<To>(To(Accumulate<From>(x.v[i]))));
  }
}

template <typename From>
void ExpectCastsToAll() {
  for (const int64_t columns : {12345, 12344}) {
    ExpectCasts<From, double>(columns);
    ExpectCasts<From, float>(columns);
    ExpectCasts<From, bf16>(columns);
  }
}

// Equal dtypes are a copy.
TEST(Cast, GoesFromAnyDTypeToAny) {
  ExpectCastsToAll<double>();
  ExpectCastsToAll<float>();
  ExpectCastsToAll<bf16>();
}

TEST(CastDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3}), y = Zeros<float>({4});
  EXPECT_DEATH(Call(CastArgs{.x = x, .y = y}), "cast y: wanted f32 with 3 elements");
}

TEST(Positions, CountUpWithinEachSequence) {
  auto y = Zeros<int32_t>({2, 4});
  Call(PositionsArgs{.y = y, .part = {.rows = 3}});
  EXPECT_EQ(y.v, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_DEATH(Call(PositionsArgs{.y = y, .part = {.rows = 0}}), "positions: rows 0");
}

// The last three of the eight rows of two sequences.
TEST(Positions, AreThoseInDocumentsWhereTheseBegin) {
  auto y = Zeros<int32_t>({3});
  auto begins = Zeros<int32_t>({8});
  begins.v = {0, 0, 2, 2, 0, 1, 1, 3};
  Call(PositionsArgs{.y = y, .part = {.rows = 4}, .first_row = 5, .document_begins = begins});
  EXPECT_EQ(y.v, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_DEATH(
      Call(PositionsArgs{.y = y, .part = {.rows = 4}, .first_row = 6, .document_begins = begins}),
      "document_begins");
}

// Chunks 1 and 4 of six; the last five of the six rows of two sequences.
TEST(Positions, OfAContextRankAreThoseOfItsTwoChunks) {
  auto y = Zeros<int32_t>({5});
  Call(PositionsArgs{.y = y, .part = {.rows = 4, .ranks = 3, .rank = 1}, .first_row = 1});
  EXPECT_EQ(y.v, (std::vector<int32_t>{3, 8, 9, 2, 3}));
  EXPECT_DEATH(Call(PositionsArgs{.y = y, .part = {.rows = 3, .ranks = 2}}), "rows 3");
}

}  // namespace trainyard::testing::elementwise
