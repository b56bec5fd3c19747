// Proves kernels/products/quantize.h, scaled_matmul.h and amax_history.h on the CPU: scales of
// every shape against naive loops, that a product is that of the rounded numbers in every role,
// what numbers that are not finite become, and how a history moves.

#include "kernels/products/quantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/products/amax_history.h"
#include "kernels/products/scaled_matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

constexpr ScaleBlock kBlocks[] = {{},
                                  {.rows = 1},
                                  {.columns = 1},
                                  {.rows = 1, .columns = 8},
                                  {.rows = 8, .columns = 1},
                                  {.rows = 8, .columns = 16}};

// A matrix in a narrow format, with what it is made of.
template <typename A>
struct Rounded {
  Array<uint8_t> bytes;
  DType dtype;
  ScaleBlock block;
  Array<A> scales, amax;

  Tensor values() { return {{bytes.v.data(), dtype, bytes.shape}}; }
  double scale(int64_t r, int64_t c) const {
    const ScaleBlock real = block.In(bytes.shape);
    return scales.v[size_t(r / real.rows * scales.shape.back() + c / real.columns)];
  }
  double At(int64_t i) const {
    const uint8_t byte = bytes.v[size_t(i)];
    const float number = dtype == DType::kE4M3 ? ToFloat<E4M3>(byte) : ToFloat<E5M2>(byte);
    return number * scale(i / bytes.shape.back(), i % bytes.shape.back());
  }
};

template <typename T>
Rounded<Accumulate<T>> Round(const Array<T>& x, DType dtype, const ScaleBlock& block,
                             int threads = 2) {
  using A = Accumulate<T>;
  const Shape scales = block.ScalesOf(x.shape);
  Rounded<A> y{.bytes = {x.shape, std::vector<uint8_t>(x.v.size(), 0x55)},
               .dtype = dtype,
               .block = block,
               .scales = Poison<A>(scales),
               .amax = Poison<A>(scales)};
  Call(AmaxArgs{.x = x, .block = block, .amax = y.amax}, threads);
  Call(QuantizeArgs{.x = x, .block = block, .amax = y.amax, .y = y.values(), .scales = y.scales},
       threads);
  return y;
}

template <typename T>
void ExpectRounded(const Shape& shape, DType dtype, const ScaleBlock& block) {
  SCOPED_TRACE(::testing::Message() << DTypeOf<T>::value << shape << ' ' << dtype << ' '
                                    << block.rows << 'x' << block.columns);
  const auto x = Normal<T>(shape, 1);
  const auto y = Round(x, dtype, block);
  const ScaleBlock real = block.In(shape);
  const double step = dtype == DType::kE4M3 ? 0x1p-4 : 0x1p-3;  // Half a unit of the last place.
  std::vector<double> amax(y.amax.v.size());
  for (size_t i = 0; i < x.v.size(); ++i) {
    const int64_t r = int64_t(i) / shape.back(), c = int64_t(i) % shape.back();
    double& of_block = amax[size_t(r / real.rows * y.amax.shape.back() + c / real.columns)];
    of_block = std::max(of_block, std::abs(double(Accumulate<T>(x.v[i]))));
  }
  const double largest =
      DispatchNarrow(dtype, [](auto format) { return double(decltype(format)::kLargest); });
  for (size_t i = 0; i < amax.size(); ++i) {
    ASSERT_EQ(double(y.amax.v[i]), amax[i]) << i;
    ASSERT_NEAR(y.scales.v[i] * largest, amax[i], 1e-6 * amax[i]) << i;
  }
  for (size_t i = 0; i < x.v.size(); ++i) {
    const double want = Accumulate<T>(x.v[i]), got = y.At(int64_t(i));
    const double least = y.scale(int64_t(i) / shape.back(), int64_t(i) % shape.back()) *
                         (dtype == DType::kE4M3 ? 0x1p-10 : 0x1p-17);
    ASSERT_NEAR(got, want, std::max(step * std::abs(want), least) * 1.001) << i;
  }
}

TEST(Quantize, NumbersKeepTheirPrecisionRelativeToTheirBlock) {
  for (const Shape& shape : {Shape{1, 1}, Shape{24, 32}, Shape{3, 7, 20}}) {
    for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
      for (const ScaleBlock& block : kBlocks) {
        ExpectRounded<double>(shape, dtype, block);
        ExpectRounded<float>(shape, dtype, block);
        ExpectRounded<bf16>(shape, dtype, block);
      }
    }
  }
}

TEST(Quantize, DoesNotDependOnThreads) {
  const auto x = Normal<float>({257, 300}, 1);
  for (const ScaleBlock& block : kBlocks) {
    const auto one = Round(x, DType::kE4M3, block, 1), three = Round(x, DType::kE4M3, block, 3);
    EXPECT_EQ(one.amax.v, three.amax.v);
    EXPECT_EQ(one.bytes.v, three.bytes.v);
  }
}

TEST(Quantize, ScaleOfZeroesIsOneAndScalesOfTinyNumbersAreFinite) {
  auto y = Round(Array<float>{{2, 2}, {0, -0.0f, 1e-42f, 1e-40f}}, DType::kE4M3, {.rows = 1});
  EXPECT_EQ(y.scales.v[0], 1.0f);
  EXPECT_GT(y.scales.v[1], 0.0f);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(y.At(i), 0) << i;
}

TEST(Quantize, WhatIsNotFiniteRemainsVisible) {
  auto y = Round(Array<float>{{3, 2}, {1, NAN, 1, INFINITY, 1, 2}}, DType::kE4M3, {.rows = 1});
  EXPECT_FLOAT_EQ(float(y.At(0)), 1);
  EXPECT_TRUE(std::isnan(y.At(1)));
  EXPECT_TRUE(std::isnan(y.At(2)) && std::isnan(y.At(3)));
  EXPECT_FLOAT_EQ(float(y.At(5)), 2);
}

// As a history gives it: numbers beyond what the history has seen become the largest.
TEST(Quantize, OneScaleFollowsFromTheGreatestOfSeveralNumbers) {
  const Array<float> x = {{1, 3}, {1, 14, -1000}}, history = {{4}, {0, 14, 7, 3}};
  Rounded<float> y{.bytes = {{1, 3}, std::vector<uint8_t>(3)},
                   .dtype = DType::kE4M3,
                   .block = {},
                   .scales = Poison<float>({1, 1}),
                   .amax = {}};
  Call(QuantizeArgs{.x = x, .block = {}, .amax = history, .y = y.values(), .scales = y.scales});
  EXPECT_EQ(y.scales.v[0], 1 / 32.0f);
  EXPECT_EQ((std::vector<double>{y.At(0), y.At(1), y.At(2)}), (std::vector<double>{1, 14, -14}));
}

template <typename A>
ScaledMatMulArgs ProductOf(Rounded<A>& a, Rounded<A>& b, Tensor c) {
  return {.a = a.values(),
          .a_scales = a.scales,
          .a_block = a.block,
          .b = b.values(),
          .b_scales = b.scales,
          .b_block = b.block,
          .c = c};
}

template <typename A, typename C>
void ExpectProduct(const ScaleBlock& block, bool trans_a, bool trans_b, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << DTypeOf<C>::value << ' ' << block.rows << 'x'
                                    << block.columns << ' ' << trans_a << trans_b);
  constexpr int64_t m = 13, n = 21, k = 34;
  auto a = Round(Normal<A>(trans_a ? Shape{k, m} : Shape{m, k}, 1), DType::kE5M2, block);
  auto b = Round(Normal<A>(trans_b ? Shape{n, k} : Shape{k, n}, 2), DType::kE4M3, block);
  const auto bias = Normal<C>({n}, 3);
  auto want = Zeros<double>({m, n});
  for (int64_t i = 0; i < m * n; ++i) {
    const int64_t row = i / n, column = i % n;
    for (int64_t j = 0; j < k; ++j) {
      want.v[size_t(i)] += a.At(trans_a ? j * m + row : row * k + j) *
                           b.At(trans_b ? column * k + j : j * n + column);
    }
    if (with_bias) want.v[size_t(i)] += double(Accumulate<C>(bias.v[size_t(column)]));
  }
  auto got = Poison<C>({m, n});
  ScaledMatMulArgs args = ProductOf(a, b, got);
  args.trans_a = trans_a;
  args.trans_b = trans_b;
  if (with_bias) args.bias = bias;
  Call(args);
  ExpectClose(Converted<double>(got).v, want.v, Tolerance(DTypeOf<C>::value, k));
  if (with_bias || DTypeOf<C>::value == DType::kBF16) return;
  args.write = Write::kAdd;
  Call(args);
  for (double& x : want.v) x *= 2;
  ExpectClose(Converted<double>(got).v, want.v, Tolerance(DTypeOf<C>::value, k));
}

TEST(ScaledMatMul, IsTheProductOfTheRoundedNumbers) {
  for (const ScaleBlock& block : kBlocks) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const bool with_bias : {false, true}) {
          ExpectProduct<double, double>(block, trans_a, trans_b, with_bias);
          ExpectProduct<float, float>(block, trans_a, trans_b, with_bias);
          ExpectProduct<float, bf16>(block, trans_a, trans_b, with_bias);
        }
      }
    }
  }
}

// The product of a matrix [8, 32] whose numbers are all `x` and one [16, 32] of ones.
std::vector<float> ProductOfEqual(bf16 x, DType dtype, const ScaleBlock& block) {
  Array<bf16> of_a = Zeros<bf16>({8, 32}), of_b = Zeros<bf16>({16, 32});
  std::fill(of_a.v.begin(), of_a.v.end(), x);
  std::fill(of_b.v.begin(), of_b.v.end(), bf16(1.0f));
  auto a = Round(of_a, dtype, block), b = Round(of_b, DType::kE4M3, block);
  auto c = Poison<float>({8, 16});
  ScaledMatMulArgs args = ProductOf(a, b, c);
  args.trans_b = true;
  Call(args);
  return c.v;
}

// Bug it must catch: a scale of 0 or infinity, which makes no number of a whole layer.
TEST(ScaledMatMul, ZeroesAndTheSmallestAndLargestNumbersGoThroughAWholeProduct) {
  for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
    for (const ScaleBlock& block : kBlocks) {
      for (const float x :
           {0.0f, -0.0f, 0x1p-133f, 0x1p-126f, 0x1p-101f}) {  // No scale is so small.
        for (const float y : ProductOfEqual(bf16(x), dtype, block))
          ASSERT_NEAR(y, 32 * x, 0x1p-95f);
      }
      for (const float x : {0x1p-100f, -0x1p-60f, 1.5f, 0x1.fep120f}) {
        for (const float y : ProductOfEqual(bf16(x), dtype, block)) {
          ASSERT_NEAR(y, 32 * x, 1e-5 * std::abs(32 * x)) << x;
        }
      }
      for (const float x : {INFINITY, -INFINITY, NAN}) {
        for (const float y : ProductOfEqual(bf16(x), dtype, block)) ASSERT_TRUE(std::isnan(y)) << x;
      }
    }
  }
}

TEST(ScaledMatMulDeathTest, NamesTheScalesThatDoNotFit) {
  auto a = Round(Normal<float>({4, 8}, 1), DType::kE4M3, {.rows = 1});
  auto b = Round(Normal<float>({4, 8}, 1), DType::kE4M3, {.rows = 1});
  auto c = Poison<float>({4, 4});
  a.block = {};
  ScaledMatMulArgs args = ProductOf(a, b, c);
  args.trans_b = true;
  EXPECT_DEATH(Call(args), "scaled_matmul a: wanted f32 \\[1, 1\\], got f32 \\[4, 1\\]");
}

template <typename A>
void ExpectHistory(int64_t finite) {
  const Array<A> first = {{2}, {3, 5}}, second = {{1}, {4}};
  auto gradient = Poison<A>({3});
  AmaxHistoryGradientArgs note{.amax = first, .gradient = gradient, .write = Write::kOverwrite};
  Call(note);
  EXPECT_EQ(gradient.v, (std::vector<A>{5, 0, 0}));
  note.amax = second;
  note.write = Write::kAdd;
  Call(note);
  EXPECT_EQ(gradient.v, (std::vector<A>{5, 0, 0}));
  Array<A> history = {{3}, {7, 8, 9}};
  StepState state{.finite = finite};
  Call(AmaxHistoryArgs{.history = history, .gradient = gradient, .state = &state});
  EXPECT_EQ(history.v, finite ? (std::vector<A>{8, 9, 5}) : (std::vector<A>{7, 8, 9}));
}

TEST(AmaxHistory, EndsWithTheGreatestOfAStepThatIsFinite) {
  for (const int64_t finite : {1, 0}) {
    ExpectHistory<double>(finite);
    ExpectHistory<float>(finite);
  }
}

}  // namespace
}  // namespace trainyard::testing
