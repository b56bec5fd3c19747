// Proves kernels/products/grouped_round.h, and that the products of grouped_matmul.h are those of
// the rounded numbers: greatest values, scales and numbers of every group against a loop in f64,
// for groups with and without offsets and without rows, of numbers that are zero, tiny, huge,
// infinite or none; the three products of groups that have scales; histories of groups.

#include "kernels/products/grouped_round.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/products/amax_history.h"
#include "kernels/products/grouped_matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::grouped_round {

constexpr DType kFormats[] = {DType::kE4M3, DType::kE5M2};

template <typename T>
struct Rounded {
  Array<T> values;
  Array<Accumulate<T>> amax, scales;
};

// Without `offsets`, `groups` groups have equally many rows.
template <typename T>
Rounded<T> Round(const Array<T>& x, const Array<int32_t>* offsets, int64_t groups, DType format) {
  using A = Accumulate<T>;
  Rounded<T> y{Filled<T>(x.shape, T(3)), Poison<A>({groups}), Poison<A>({groups})};
  const ConstTensor at = offsets == nullptr ? ConstTensor{} : ConstTensor(*offsets);
  Call(GroupedAmaxArgs{.x = x, .offsets = at, .amax = y.amax, .write = Write::kOverwrite});
  Call(GroupedRoundArgs{
      .x = x, .offsets = at, .amax = y.amax, .format = format, .y = y.values, .scales = y.scales});
  return y;
}

double Largest(DType format) { return format == DType::kE4M3 ? 448 : 57344; }

// The number of the format that is nearest to x, by bits.
template <typename A>
double Nearest(A x, DType format) {
  return DispatchNarrow(
      format, [&](auto f) { return double(ToFloat<decltype(f)>(RoundTo<decltype(f)>(x))); });
}

template <typename T>
void ExpectGroups(int64_t columns, const std::vector<int32_t>& offsets, int64_t bound) {
  using A = Accumulate<T>;
  const auto x = Normal<T>({bound, columns}, 1);
  const int64_t groups = int64_t(offsets.size()) - 1;
  const Array<int32_t> at = {{groups + 1}, offsets};
  for (const DType format : kFormats) {
    SCOPED_TRACE(::testing::Message() << DTypeOf<T>::value << columns << ' ' << format);
    const auto y = Round(x, &at, groups, format);
    int64_t row = 0;
    for (; row < offsets.front(); ++row) ASSERT_EQ(double(y.values.v[size_t(row * columns)]), 3);
    for (int64_t g = 0; g < groups; ++g) {
      A amax = 0;
      for (int64_t i = row * columns; i < offsets[size_t(g + 1)] * columns; ++i) {
        amax = std::max(amax, std::abs(A(x.v[size_t(i)])));
      }
      ASSERT_EQ(y.amax.v[size_t(g)], amax) << g;
      const A factor = amax == 0 ? A(1) : A(Largest(format)) / amax;
      ASSERT_EQ(y.scales.v[size_t(g)], 1 / factor) << g;
      for (; row < offsets[size_t(g + 1)]; ++row) {
        for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
          ASSERT_EQ(double(y.values.v[size_t(i)]), Nearest(A(x.v[size_t(i)]) * factor, format));
        }
      }
    }
    for (; row < bound; ++row) ASSERT_EQ(double(y.values.v[size_t(row * columns)]), 3);
  }
}

TEST(GroupedRound, EachGroupHasTheScaleOfItsGreatestNumber) {
  for (const int64_t columns : {1, 7, 8, 24, 264}) {
    ExpectGroups<double>(columns, {2, 2, 6, 40, 40, 41}, 50);
    ExpectGroups<float>(columns, {0, 17, 29, 64, 80, 81, 96}, 96);
    ExpectGroups<bf16>(columns, {1, 70, 70, 131}, 140);
  }
}

TEST(GroupedRound, WithoutOffsetsGroupsAreEquallyLong) {
  const auto x = Normal<bf16>({3, 4, 16}, 1);
  const Array<int32_t> offsets = {{4}, {0, 4, 8, 12}};
  for (const DType format : kFormats) {
    const auto with = Round(x, &offsets, 3, format), without = Round(x, nullptr, 3, format);
    EXPECT_EQ(with.scales.v, without.scales.v);
    for (size_t i = 0; i < x.v.size(); ++i) {
      EXPECT_EQ(with.values.v[i].bits, without.values.v[i].bits) << i;
    }
  }
}

// The scale of a number, by the definition.
template <typename T>
void ExpectLines(ScaleOf scale_of, int64_t columns, const std::vector<int32_t>& offsets,
                 int64_t bound) {
  using A = Accumulate<T>;
  const bool by_row = scale_of == ScaleOf::kRow;
  SCOPED_TRACE(::testing::Message() << DTypeOf<T>::value << columns << ' ' << by_row);
  const auto x = Normal<T>({bound, columns}, 1);
  const int64_t groups = int64_t(offsets.size()) - 1;
  const Array<int32_t> at = {{groups + 1}, offsets};
  const Shape of_scales = by_row ? Shape{bound} : Shape{groups, columns};
  std::vector<A> want(size_t(of_scales.elements()), A(0));
  std::vector<int64_t> group_of(size_t(bound), -1);
  const auto line = [&](int64_t r, int64_t c) {
    return size_t(by_row ? r : group_of[size_t(r)] * columns + c);
  };
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = offsets[size_t(g)]; r < offsets[size_t(g) + 1]; ++r) {
      group_of[size_t(r)] = g;
      for (int64_t c = 0; c < columns; ++c) {
        A& most = want[line(r, c)];
        most = std::max(most, std::abs(A(x.v[size_t(r * columns + c)])));
      }
    }
  }
  auto amax = Poison<A>(of_scales), scales = Poison<A>(of_scales);
  auto y = Filled<T>(x.shape, T(3));
  Call(GroupedAmaxArgs{
      .x = x, .offsets = at, .amax = amax, .write = Write::kOverwrite, .scale_of = scale_of});
  Call(GroupedRoundArgs{.x = x,
                        .offsets = at,
                        .amax = amax,
                        .format = DType::kE4M3,
                        .y = y,
                        .scales = scales,
                        .scale_of = scale_of});
  for (int64_t r = 0; r < bound; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto i = size_t(r * columns + c);
      if (group_of[size_t(r)] < 0) {
        ASSERT_EQ(double(y.v[i]), 3) << "row " << r << " belongs to no group";
        continue;
      }
      const A most = want[line(r, c)], factor = most == 0 ? A(1) : A(448) / most;
      ASSERT_EQ(amax.v[line(r, c)], most);
      ASSERT_EQ(scales.v[line(r, c)], 1 / factor);
      ASSERT_EQ(double(y.v[i]), Nearest(A(x.v[i]) * factor, DType::kE4M3));
    }
  }
}

// Bugs it must catch: the scale of another line, or of another group's column; a group whose rows
// end within those that a block of the GPU looks at.
TEST(GroupedRound, ALineHasTheScaleOfItsGreatestNumber) {
  for (const ScaleOf scale_of : {ScaleOf::kRow, ScaleOf::kColumn}) {
    for (const int64_t columns : {1, 7, 8, 24, 264}) {
      ExpectLines<double>(scale_of, columns, {2, 2, 6, 40, 40, 41}, 50);
      ExpectLines<float>(scale_of, columns, {0, 17, 29, 64, 80, 81, 96}, 96);
      ExpectLines<bf16>(scale_of, columns, {1, 70, 70, 131}, 140);
    }
  }
}

TEST(GroupedRound, MayReplaceItsInput) {
  const auto x = Normal<bf16>({9, 24}, 1);
  const Array<int32_t> offsets = {{3}, {0, 4, 9}};
  const auto want = Round(x, &offsets, 2, DType::kE4M3);
  auto y = x;
  auto scales = Poison<float>({2});
  Call(GroupedRoundArgs{.x = y,
                        .offsets = offsets,
                        .amax = want.amax,
                        .format = DType::kE4M3,
                        .y = y,
                        .scales = scales});
  for (size_t i = 0; i < x.v.size(); ++i) EXPECT_EQ(y.v[i].bits, want.values.v[i].bits) << i;
}

// Zeroes have the scale 1. The least and the largest numbers keep their sizes. What is not finite
// remains visible, and does not touch other groups.
TEST(GroupedRound, KeepsZeroTinyHugeAndInfiniteNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kTiny = 0x1p-149f, kHuge = std::numeric_limits<float>::max();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const Array<float> x = {{5, 2}, {0, -0.0f, kTiny, -kTiny, kHuge, -kHuge, 1, kInfinity, kNone, 2}};
  const Array<int32_t> offsets = {{6}, {0, 1, 2, 3, 4, 5}};
  for (const DType format : kFormats) {
    const auto y = Round(x, &offsets, 5, format);
    const auto number = [&](size_t i) { return double(y.values.v[i]) * y.scales.v[i / 2]; };
    EXPECT_EQ(y.scales.v[0], 1);
    EXPECT_EQ(number(0), 0);
    EXPECT_EQ(number(1), 0);
    EXPECT_TRUE(std::signbit(y.values.v[1]));
    EXPECT_LE(std::abs(number(2)), 2 * kTiny);  // Below the least factor: may vanish.
    EXPECT_TRUE(std::isfinite(number(2)));
    EXPECT_NEAR(number(4), kHuge, 1e-6 * kHuge);
    EXPECT_NEAR(number(5), -kHuge, 1e-6 * kHuge);
    EXPECT_TRUE(std::isnan(number(7)));
    EXPECT_TRUE(std::isnan(number(8)));
    EXPECT_EQ(y.amax.v[4], 2);  // Passes over what is no number.
    EXPECT_NEAR(number(9), 2, 1e-6);
  }
}

TEST(GroupedRound, RaisesWhatIsThere) {
  const Array<float> x = {{3, 1}, {1, -5, 2}};
  const Array<int32_t> offsets = {{4}, {0, 1, 2, 2}};
  Array<float> amax = {{3}, {4, 4, 4}};
  Call(GroupedAmaxArgs{.x = x, .offsets = offsets, .amax = amax, .write = Write::kAdd});
  EXPECT_EQ(amax.v, (std::vector<float>{4, 5, 4}));
}

TEST(GroupedRound, AScaleMayFollowFromAHistory) {
  const Array<float> x = {{2, 2}, {1, 2, 3, 4}};
  const Array<float> history = {{2, 3}, {0, 7, 1, 0, 0, 0}};
  auto scales = Poison<float>({2}), y = Poison<float>({2, 2});
  Call(GroupedRoundArgs{.x = x, .amax = history, .format = DType::kE4M3, .y = y, .scales = scales});
  EXPECT_EQ(scales.v[0], 1 / (448.0f / 7));
  EXPECT_EQ(scales.v[1], 1);  // It has seen nothing.
  EXPECT_EQ(y.v, (std::vector<float>{64, 128, 3, 4}));
}

// Some groups have no rows.
struct Groups {
  int64_t k, n;
  std::vector<int32_t> offsets;
  int64_t bound;

  int64_t count() const { return int64_t(offsets.size()) - 1; }
};

template <typename T>
Array<double> Numbers(const Rounded<T>& of, const Groups& c, bool of_rows) {
  auto numbers = Converted<double>(of.values);
  const int64_t columns = numbers.shape.back();
  for (int64_t p = 0; p < int64_t(of.scales.v.size()); ++p) {
    const int64_t rows = numbers.shape.rows() / int64_t(of.scales.v.size());
    const int64_t begin = of_rows ? c.offsets[size_t(p)] : p * rows;
    const int64_t end = of_rows ? c.offsets[size_t(p) + 1] : (p + 1) * rows;
    for (int64_t i = begin * columns; i < end * columns; ++i) {
      numbers.v[size_t(i)] *= double(of.scales.v[size_t(p)]);
    }
  }
  return numbers;
}

template <typename T>
void ExpectProducts(const Groups& c) {
  using A = Accumulate<T>;
  SCOPED_TRACE(::testing::Message() << c.k << 'x' << c.n << ' ' << DTypeOf<T>::value);
  const Array<int32_t> offsets = {{c.count() + 1}, c.offsets};
  auto x64 = Normal<double>({c.bound, c.k}, 1), dy64 = Normal<double>({c.bound, c.n}, 3);
  // Groups of other sizes, so that a scale of another group would be seen.
  for (int64_t p = 0; p < c.count(); ++p) {
    for (int64_t r = c.offsets[size_t(p)]; r < c.offsets[size_t(p) + 1]; ++r) {
      for (int64_t i = 0; i < c.k; ++i) x64.v[size_t(r * c.k + i)] *= std::pow(3.0, p % 5);
      for (int64_t i = 0; i < c.n; ++i) dy64.v[size_t(r * c.n + i)] *= std::pow(0.3, p % 3);
    }
  }
  auto w64 = Normal<double>({c.count(), c.n, c.k}, 2);
  for (size_t i = 0; i < w64.v.size(); ++i) {
    w64.v[i] *= double(1 + int64_t(i) / (c.n * c.k));
  }
  const auto x = Round(Converted<T>(x64), &offsets, c.count(), DType::kE4M3);
  const auto w = Round(Converted<T>(w64), nullptr, c.count(), DType::kE4M3);
  const auto dy = Round(Converted<T>(dy64), &offsets, c.count(), DType::kE5M2);
  auto y = Zeros<T>({c.bound, c.n}), dx = Zeros<T>({c.bound, c.k});
  auto dw = Filled<A>(w64.shape, A(3));
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    Call(GroupedMatMulForwardArgs{.x = x.values,
                                  .weight = w.values,
                                  .offsets = offsets,
                                  .y = y,
                                  .write = write,
                                  .x_scales = x.scales,
                                  .weight_scales = w.scales});
    Call(GroupedMatMulInputGradientArgs{.dy = dy.values,
                                        .weight = w.values,
                                        .offsets = offsets,
                                        .dx = dx,
                                        .write = write,
                                        .dy_scales = dy.scales,
                                        .weight_scales = w.scales});
    Call(GroupedMatMulWeightGradientArgs{.dy = dy.values,
                                         .x = x.values,
                                         .offsets = offsets,
                                         .dweight = dw,
                                         .write = write,
                                         .dy_scales = dy.scales,
                                         .x_scales = x.scales});
  }
  const auto xs = Numbers(x, c, true), ws = Numbers(w, c, false), dys = Numbers(dy, c, true);
  auto want_y = Zeros<double>(y.shape), want_dx = Zeros<double>(dx.shape);
  auto want_dw = Zeros<double>(dw.shape);
  for (int64_t p = 0; p < c.count(); ++p) {
    for (int64_t r = c.offsets[size_t(p)]; r < c.offsets[size_t(p) + 1]; ++r) {
      for (int64_t n = 0; n < c.n; ++n) {
        for (int64_t k = 0; k < c.k; ++k) {
          const size_t at = size_t((p * c.n + n) * c.k + k);
          want_y.v[size_t(r * c.n + n)] += 2 * xs.v[size_t(r * c.k + k)] * ws.v[at];
          want_dx.v[size_t(r * c.k + k)] += 2 * dys.v[size_t(r * c.n + n)] * ws.v[at];
          want_dw.v[at] += 2 * dys.v[size_t(r * c.n + n)] * xs.v[size_t(r * c.k + k)];
        }
      }
    }
  }
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(y).v, want_y.v, Tolerance(dtype, c.k));
  ExpectClose(Converted<double>(dx).v, want_dx.v, Tolerance(dtype, c.n));
  ExpectClose(Converted<double>(dw).v, want_dw.v, Tolerance(AccumulateOfDType(dtype), c.bound));
}

// Rounds by rows or columns. Without `offsets`, `groups` groups have equally many rows.
template <typename T>
Rounded<T> RoundLines(const Array<T>& x, const Array<int32_t>* offsets, int64_t groups,
                      ScaleOf scale_of) {
  using A = Accumulate<T>;
  const int64_t columns = x.shape.back(), rows = x.shape.rows();
  const bool by_row = scale_of == ScaleOf::kRow;
  const Shape of_scales = !by_row              ? Shape{groups, columns}
                          : offsets == nullptr ? Shape{groups, rows / groups}
                                               : Shape{rows};
  Rounded<T> y{Filled<T>(x.shape, T(3)), Poison<A>(of_scales), Poison<A>(of_scales)};
  const ConstTensor at = offsets == nullptr ? ConstTensor{} : ConstTensor(*offsets);
  Call(GroupedAmaxArgs{
      .x = x, .offsets = at, .amax = y.amax, .write = Write::kOverwrite, .scale_of = scale_of});
  Call(GroupedRoundArgs{.x = x,
                        .offsets = at,
                        .amax = y.amax,
                        .format = DType::kE4M3,
                        .y = y.values,
                        .scales = y.scales,
                        .scale_of = scale_of});
  return y;
}

template <typename T>
void ExpectProductsOfLines(const Groups& c) {
  SCOPED_TRACE(::testing::Message() << c.k << 'x' << c.n << ' ' << DTypeOf<T>::value);
  const Array<int32_t> offsets = {{c.count() + 1}, c.offsets};
  const auto x64 = Normal<double>({c.bound, c.k}, 1), dy64 = Normal<double>({c.bound, c.n}, 3);
  const auto w64 = Normal<double>({c.count(), c.n, c.k}, 2);
  const auto x = RoundLines(Converted<T>(x64), &offsets, c.count(), ScaleOf::kRow);
  const auto dy = RoundLines(Converted<T>(dy64), &offsets, c.count(), ScaleOf::kRow);
  const auto rows = RoundLines(Converted<T>(w64), nullptr, c.count(), ScaleOf::kRow);
  const auto columns = RoundLines(Converted<T>(w64), nullptr, c.count(), ScaleOf::kColumn);
  auto y = Zeros<T>({c.bound, c.n}), dx = Zeros<T>({c.bound, c.k});
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    Call(GroupedMatMulForwardArgs{.x = x.values,
                                  .weight = rows.values,
                                  .offsets = offsets,
                                  .y = y,
                                  .write = write,
                                  .x_scales = x.scales,
                                  .weight_scales = rows.scales});
    Call(GroupedMatMulInputGradientArgs{.dy = dy.values,
                                        .weight = columns.values,
                                        .offsets = offsets,
                                        .dx = dx,
                                        .write = write,
                                        .dy_scales = dy.scales,
                                        .weight_scales = columns.scales});
  }
  auto want_y = Zeros<double>(y.shape), want_dx = Zeros<double>(dx.shape);
  for (int64_t p = 0; p < c.count(); ++p) {
    for (int64_t r = c.offsets[size_t(p)]; r < c.offsets[size_t(p) + 1]; ++r) {
      for (int64_t n = 0; n < c.n; ++n) {
        for (int64_t k = 0; k < c.k; ++k) {
          const auto at = size_t((p * c.n + n) * c.k + k), xk = size_t(r * c.k + k);
          const auto yn = size_t(r * c.n + n);
          want_y.v[yn] += 2 * double(x.values.v[xk]) * double(x.scales.v[size_t(r)]) *
                          double(rows.values.v[at]) * double(rows.scales.v[size_t(p * c.n + n)]);
          want_dx.v[xk] += 2 * double(dy.values.v[yn]) * double(dy.scales.v[size_t(r)]) *
                           double(columns.values.v[at]) *
                           double(columns.scales.v[size_t(p * c.k + k)]);
        }
      }
    }
  }
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(y).v, want_y.v, Tolerance(dtype, c.k));
  ExpectClose(Converted<double>(dx).v, want_dx.v, Tolerance(dtype, c.n));
}

// Bug it must catch: a scale of another line.
TEST(GroupedRound, ProductsAreThoseOfNumbersWithScalesOfLines) {
  for (const Groups& c :
       {Groups{5, 7, {0, 3, 8}, 8}, Groups{24, 16, {2, 2, 6, 40, 40}, 50},
        Groups{40, 24, {0, 17, 29, 64, 64, 81, 96}, 96}, Groups{8, 8, {0, 3, 3, 3}, 4},
        Groups{136, 264, {1, 131, 150, 150, 150, 160, 170}, 180}}) {
    ExpectProductsOfLines<double>(c);
    ExpectProductsOfLines<float>(c);
    ExpectProductsOfLines<bf16>(c);
  }
}

// Bug it must catch: a scale of another group.
TEST(GroupedRound, ProductsAreThoseOfTheRoundedNumbers) {
  for (const Groups& c :
       {Groups{5, 7, {0, 3, 8}, 8}, Groups{24, 16, {2, 2, 6, 40, 40}, 50},
        Groups{40, 24, {0, 17, 29, 64, 64, 81, 96}, 96}, Groups{8, 8, {0, 3, 3, 3}, 4},
        Groups{136, 264, {1, 131, 150, 150, 150, 160, 170}, 180}}) {
    ExpectProducts<double>(c);
    ExpectProducts<float>(c);
    ExpectProducts<bf16>(c);
  }
}

TEST(GroupedRound, EachGroupHasAHistory) {
  Array<float> history = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  const Array<float> first = {{2}, {9, 7}}, second = {{2}, {8, 11}};
  auto gradient = Poison<float>({2, 3});
  Call(AmaxHistoryGradientArgs{.amax = first, .gradient = gradient, .write = Write::kOverwrite});
  Call(AmaxHistoryGradientArgs{.amax = second, .gradient = gradient, .write = Write::kAdd});
  EXPECT_EQ(gradient.v, (std::vector<float>{9, 0, 0, 11, 0, 0}));
  StepState state{.finite = 1};
  Call(AmaxHistoryArgs{.history = history, .gradient = gradient, .state = &state});
  EXPECT_EQ(history.v, (std::vector<float>{2, 3, 9, 5, 6, 11}));
}

TEST(GroupedRoundDeathTest, NamesOffsetsThatFallOrLeaveTheRows) {
  const auto x = Normal<float>({4, 2}, 1);
  auto amax = Zeros<float>({2});
  const auto run = [&](std::vector<int32_t> values) {
    const Array<int32_t> offsets = {{3}, std::move(values)};
    Call(GroupedAmaxArgs{.x = x, .offsets = offsets, .amax = amax, .write = Write::kOverwrite});
  };
  EXPECT_DEATH(run({0, 3, 2}), "grouped_round offsets: group 1 has rows 3 to 2 of 4");
  EXPECT_DEATH(run({0, 3, 5}), "grouped_round offsets: group 1 has rows 3 to 5 of 4");
}

}  // namespace trainyard::testing::grouped_round
