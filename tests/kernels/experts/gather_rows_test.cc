// Proves kernels/experts/gather_rows.h on the CPU: rows are copied bit for bit, sums equal a plain
// loop in order, and each of the two is the adjoint of the other; rows that do not count, or that
// no row goes to, stay as they are.

#include "kernels/experts/gather_rows.h"

#include "kernels/experts/expert_order.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::gather_rows {

template <typename T>
void ExpectCopiesCountedRows(int64_t d, int64_t divisor, int32_t count, int64_t bound = 40) {
  constexpr int64_t kSources = 9;
  const auto x = Normal<T>({kSources, d}, 1);
  const auto rows = Indices({bound}, int32_t(kSources * divisor), 2);
  const Array<int32_t> counted = {{1}, {count}};
  auto y = Filled<T>({bound, d}, T(-5));
  GatherRowsArgs args{.x = x, .rows = rows, .divisor = divisor, .y = y};
  if (count < bound) args.count = counted;
  Call(args);
  for (int64_t i = 0; i < bound * d; ++i) {
    const int64_t from = rows.v[size_t(i / d)] / divisor;
    const T want = i / d < count ? x.v[size_t(from * d + i % d)] : T(-5);
    ASSERT_EQ(float(y.v[size_t(i)]), float(want)) << i;
  }
}

TEST(GatherRows, CopiesTheRowsThatCount) {
  for (const int64_t d : {1, 24, 131, 1104}) {
    for (const int64_t divisor : {1, 3}) {
      for (const int32_t count : {0, 17, 40}) {
        ExpectCopiesCountedRows<double>(d, divisor, count);
        ExpectCopiesCountedRows<float>(d, divisor, count);
        ExpectCopiesCountedRows<bf16>(d, divisor, count);
      }
    }
  }
}

TEST(GatherRows, CopiesMoreRowsThanAGpuTakesAtOnce) {
  ExpectCopiesCountedRows<float>(1, 1, 9'999, 10'000);
  ExpectCopiesCountedRows<bf16>(8, 3, 9'999, 10'000);
}

template <typename T>
void ExpectGoesWhereRowsSay(int64_t d, int64_t count) {
  const int64_t places = 2 * count + 3;
  const auto x = Normal<T>({count, d}, 1);
  Array<int32_t> rows = {{count}, {}};
  auto y = Filled<T>({places, d}, T(-5)), want = y;
  for (int64_t i = 0; i < count; ++i) {
    rows.v.push_back(i % 3 == 1 ? -1 : int32_t((i * 2 + 5) % places));
    if (rows.v.back() < 0) continue;
    std::copy_n(x.v.begin() + i * d, d, want.v.begin() + rows.v.back() * d);
  }
  Call(ScatterRowsArgs{.x = x, .rows = rows, .y = y}, 2);
  ASSERT_EQ(Converted<double>(y).v, Converted<double>(want).v);
}

TEST(ScatterRows, CopiesRowsToTheirPlacesAndLeavesTheOthers) {
  for (const int64_t d : {1, 24, 131, 1104}) {
    ExpectGoesWhereRowsSay<double>(d, 40);
    ExpectGoesWhereRowsSay<float>(d, 40);
    ExpectGoesWhereRowsSay<bf16>(d, 40);
  }
  ExpectGoesWhereRowsSay<float>(1, 9'999);  // More than a GPU takes at once.
}

TEST(ScatterRowsDeathTest, NamesTheRowThatDoesNotExist) {
  const auto x = Zeros<float>({2, 4});
  auto y = Zeros<float>({3, 4});
  const Array<int32_t> beyond = {{2}, {-1, 3}}, negative = {{2}, {0, -2}};
  EXPECT_DEATH(Call(ScatterRowsArgs{.x = x, .rows = beyond, .y = y}),
               "scatter_rows rows: row 3 at 1, y has 3");
  EXPECT_DEATH(Call(ScatterRowsArgs{.x = x, .rows = negative, .y = y}), "row -2 at 1");
}

constexpr int64_t kTokens = 70, kChoices = 6;

// Places of so many tokens' choices in another order, some of them in none.
Array<int32_t> Places(int64_t tokens) {
  auto place = Zeros<int32_t>({tokens, kChoices});
  for (int64_t i = 0; i < tokens * kChoices; ++i) {
    const bool none = i % 5 == 2 || i / kChoices % 4 == 1;  // Some tokens have no place at all.
    place.v[size_t(i)] = none ? -1 : int32_t(i * 11 % (tokens * kChoices));
  }
  return place;
}

template <typename T>
void ExpectSumsInOrder(int64_t d, int threads, int64_t tokens = kTokens) {
  using A = Accumulate<T>;
  const auto place = Places(tokens);
  const auto z = Normal<T>({tokens * kChoices, d}, 1);
  auto y = Poison<T>({tokens, d}), want = Zeros<T>({tokens, d});
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    for (int64_t i = 0; i < tokens * d; ++i) {
      A sum = A(want.v[size_t(i)]);
      for (int64_t j = 0; j < kChoices; ++j) {
        const int64_t row = place.v[size_t(i / d * kChoices + j)];
        if (row >= 0) sum += A(z.v[size_t(row * d + i % d)]);
      }
      want.v[size_t(i)] = T(sum);
    }
    Call(GatherSumArgs{.z = z, .place = place, .y = y, .write = write}, threads);
    ASSERT_EQ(Converted<double>(y).v, Converted<double>(want).v);
  }
}

TEST(GatherSum, AddsInOrderForAnyThreadCount) {
  for (const int threads : {1, 3}) {
    for (const int64_t d : {1, 131, 600}) {
      ExpectSumsInOrder<double>(d, threads);
      ExpectSumsInOrder<float>(d, threads);
      ExpectSumsInOrder<bf16>(d, threads);
    }
  }
}

TEST(GatherSum, AddsForMoreTokensThanAGpuTakesAtOnce) { ExpectSumsInOrder<float>(1, 2, 9'000); }

// With slots sorted by expert: <gather(x), dy> == <x, sum(dy)> for all x and dy.
TEST(GatherSum, IsTheAdjointOfGatherRows) {
  const auto experts = Indices({kTokens, kChoices}, 8, 5);
  auto counts = Zeros<int32_t>({8}), order = Zeros<int32_t>({kTokens * kChoices});
  auto place = Zeros<int32_t>({kTokens, kChoices});
  Call(ExpertOrderArgs{.experts = experts, .counts = counts, .order = order, .place = place});
  const auto x = Normal<double>({kTokens, 5}, 1), dy = Normal<double>({kTokens * kChoices, 5}, 2);
  auto y = Poison<double>(dy.shape), dx = Poison<double>(x.shape);
  Call(GatherRowsArgs{.x = x, .rows = order, .divisor = kChoices, .y = y});
  Call(GatherSumArgs{.z = dy, .place = place, .y = dx});
  EXPECT_NEAR(Dot(y, dy), Dot(x, dx), 1e-12 * std::abs(Dot(y, dy)));
}

TEST(GatherRowsDeathTest, NamesTheRowThatDoesNotExist) {
  const auto x = Zeros<float>({3, 4});
  auto y = Zeros<float>({2, 4});
  const auto run = [&](const std::vector<int32_t>& rows, int32_t count) {
    const Array<int32_t> r = {{2}, rows}, c = {{1}, {count}};
    Call(GatherRowsArgs{.x = x, .rows = r, .count = c, .divisor = 2, .y = y});
  };
  run({5, 6}, 1);
  EXPECT_DEATH(run({5, 6}, 2), "gather_rows rows: row 6 / 2 at 1, x has 3");
  EXPECT_DEATH(run({-1, 0}, 2), "row -1 / 2 at 0");
  EXPECT_DEATH(run({0, 0}, 3), "gather_rows count: 3 of 2");
  EXPECT_DEATH(run({0, 0}, -1), "gather_rows count: -1 of 2");
  const Array<int32_t> place = {{1, 2}, {-1, 3}}, negative = {{1, 2}, {0, -2}};
  auto sum = Zeros<float>({1, 4});
  EXPECT_DEATH(Call(GatherSumArgs{.z = x, .place = place, .y = sum}),
               "gather_sum place: row 3 at 1, z has 3");
  EXPECT_DEATH(Call(GatherSumArgs{.z = x, .place = negative, .y = sum}), "row -2 at 1");
}

TEST(GatherRowsDeathTest, NamesTheArgumentOfWrongShape) {
  const auto x = Zeros<float>({3, 4});
  const auto rows = Zeros<int32_t>({2});
  auto y = Zeros<float>({3, 4});
  EXPECT_DEATH(Call(GatherRowsArgs{.x = x, .rows = rows, .y = y}),
               "gather_rows y: wanted f32 \\[2, 4\\], got f32 \\[3, 4\\]");
  EXPECT_DEATH(Call(GatherSumArgs{.z = x, .place = {rows.v.data(), DType::kI32, {1, 2}}, .y = y}),
               "gather_sum y: wanted f32 \\[1, 4\\]");
}

}  // namespace trainyard::testing::gather_rows
