// Proves kernels/products/quantize.h, scaled_matmul.h and amax_history.h: scales of every shape
// against naive loops, and both copies to the bit; that a product is that of the rounded numbers in
// every role and order; what numbers that are not finite become; and how a history moves.

#include "kernels/products/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/products/amax_history.h"
#include "kernels/products/scaled_matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::quantize {

constexpr ScaleBlock kBlocks[] = {{},
                                  {.rows = 1},
                                  {.columns = 1},
                                  {.rows = 1, .columns = 8},
                                  {.rows = 8, .columns = 1},
                                  {.rows = 8, .columns = 16},
                                  {.rows = 1, .columns = 128},
                                  {.rows = 128, .columns = 1},
                                  {.rows = 128, .columns = 128}};

// A matrix in a narrow format, with what it is made of.
template <typename A>
struct Rounded {
  Array<uint8_t> bytes, by_columns;
  DType dtype;
  ScaleBlock block;
  Array<A> scales, amax;

  Tensor values() { return {{bytes.v.data(), dtype, bytes.shape}}; }
  Tensor columns() { return {{by_columns.v.data(), dtype, by_columns.shape}}; }
  // The matrix, whose numbers lie column by column.
  ConstTensor lying_by_columns() const { return {by_columns.v.data(), dtype, bytes.shape}; }
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
  const Shape transposed = {x.shape.back(), x.shape.rows()};
  Rounded<A> y{.bytes = {x.shape, std::vector<uint8_t>(x.v.size(), 0x55)},
               .by_columns = {transposed, std::vector<uint8_t>(x.v.size(), 0x55)},
               .dtype = dtype,
               .block = block,
               .scales = Poison<A>(scales),
               .amax = Poison<A>(scales)};
  Call(AmaxArgs{.x = x, .block = block, .amax = y.amax}, threads);
  Call(QuantizeArgs{.x = x,
                    .block = block,
                    .amax = y.amax,
                    .y = y.values(),
                    .by_columns = y.columns(),
                    .scales = y.scales},
       threads);
  return y;
}

// What the formulas of quantize.h give, in the arithmetic of the accumulate dtype.
template <typename T>
uint8_t WantedByte(T x, Accumulate<T> amax, DType dtype) {
  using A = Accumulate<T>;
  return DispatchNarrow(dtype, [&](auto format) {
    using Format = decltype(format);
    const A factor = amax == 0 ? A(1) : A(Format::kLargest) / amax;
    return RoundTo<Format>(A(x) * factor);
  });
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
  const int64_t columns = shape.back(), rows = shape.rows();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t r = i / columns, c = i % columns;
    const size_t scale = size_t(r / real.rows * y.amax.shape.back() + c / real.columns);
    const uint8_t byte = y.bytes.v[size_t(i)];
    ASSERT_EQ(byte, WantedByte<T>(x.v[size_t(i)], y.amax.v[scale], dtype)) << i;
    ASSERT_EQ(y.by_columns.v[size_t(c * rows + r)], byte) << i;
  }
}

TEST(Quantize, NumbersKeepTheirPrecisionRelativeToTheirBlock) {
  // The last two have whole tiles of a GPU's kernels and rests of tiles, in packs and number by
  // number.
  for (const Shape& shape :
       {Shape{1, 1}, Shape{24, 32}, Shape{3, 7, 20}, Shape{144, 272}, Shape{131, 130}}) {
    for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
      for (const ScaleBlock& block : kBlocks) {
        ExpectRounded<double>(shape, dtype, block);
        ExpectRounded<float>(shape, dtype, block);
        ExpectRounded<bf16>(shape, dtype, block);
      }
    }
  }
}

// Bug it must catch: the scale of each column of a tile, where several columns share one.
TEST(Quantize, TallBlocksMayHaveSeveralColumns) {
  for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
    ExpectRounded<bf16>({144, 272}, dtype, {.rows = 128, .columns = 16});
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

// A history may be too small for the numbers of a step: they are multiplied by a factor that suits
// others. Numbers that are not finite lie among ones that are, and once alone in a pack of a GPU.
template <typename T>
void ExpectSpecialsRounded(const Shape& shape, DType dtype) {
  using A = Accumulate<T>;
  SCOPED_TRACE(::testing::Message() << DTypeOf<T>::value << shape << ' ' << dtype);
  auto x = Normal<T>(shape, 1);
  const A specials[] = {A(NAN), -A(NAN), A(INFINITY), -A(INFINITY), A(0x1p100f), -A(0x1p127f)};
  for (size_t i = 0; i < x.v.size(); i += 5) x.v[i] = T(specials[i / 5 % std::size(specials)]);
  const Array<A> history = {{2}, {A(0x1p-60f), A(0x1p-70f)}};
  Rounded<A> y{.bytes = {shape, std::vector<uint8_t>(x.v.size(), 0x55)},
               .by_columns = {{shape.back(), shape.rows()}, std::vector<uint8_t>(x.v.size(), 0x55)},
               .dtype = dtype,
               .block = {},
               .scales = Poison<A>({1, 1}),
               .amax = {}};
  Call(QuantizeArgs{.x = x,
                    .block = {},
                    .amax = history,
                    .y = y.values(),
                    .by_columns = y.columns(),
                    .scales = y.scales});
  const int64_t rows = shape.rows(), columns = shape.back();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint8_t want = WantedByte<T>(x.v[size_t(i)], history.v[0], dtype);
    ASSERT_EQ(y.bytes.v[size_t(i)], want) << i << ": " << double(A(x.v[size_t(i)]));
    ASSERT_EQ(y.by_columns.v[size_t(i % columns * rows + i / columns)], want) << i;
  }
}

TEST(Quantize, NumbersThatAreNotFiniteBecomeWhatTheyWouldAlone) {
  for (const Shape& shape : {Shape{16, 32}, Shape{7, 13}}) {
    for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
      ExpectSpecialsRounded<double>(shape, dtype);
      ExpectSpecialsRounded<float>(shape, dtype);
      ExpectSpecialsRounded<bf16>(shape, dtype);
    }
  }
}

// Bug it must catch: a copy that depends on whether the other one is written.
TEST(Quantize, WritesEachCopyAlone) {
  const auto x = Normal<bf16>({80, 144}, 1);
  const auto both = Round(x, DType::kE4M3, {.rows = 1});
  for (const bool columns : {false, true}) {
    auto one = both;
    Array<uint8_t>& written = columns ? one.by_columns : one.bytes;
    written.v.assign(written.v.size(), 0x55);
    QuantizeArgs args{.x = x, .block = {.rows = 1}, .amax = one.amax, .scales = one.scales};
    (columns ? args.by_columns : args.y) = columns ? one.columns() : one.values();
    Call(args);
    EXPECT_EQ(one.bytes.v, both.bytes.v) << columns;
    EXPECT_EQ(one.by_columns.v, both.by_columns.v) << columns;
  }
}

// As a history gives it: numbers beyond what the history has seen become the largest.
TEST(Quantize, OneScaleFollowsFromTheGreatestOfSeveralNumbers) {
  const Array<float> x = {{1, 3}, {1, 14, -1000}}, history = {{4}, {0, 14, 7, 3}};
  Rounded<float> y{.bytes = {{1, 3}, std::vector<uint8_t>(3)},
                   .by_columns = {},
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

// Relative, in the Euclidean norm. The tensor cores of compute capability 9.0 keep 14 bits of a sum
// of products in 8 bits (DeepSeek-V3, arXiv:2412.19437, section 3.3.2), and cuBLASLt adds such sums
// of few terms in f32.
double ToleranceOfProduct(DType dtype, int64_t k) {
  const bool cores = TestedBackend().device() == DeviceKind::kCuda && dtype != DType::kF64;
  return Tolerance(dtype, k) + (cores ? 2 * 0x1p-13 : 0);
}

struct ProductCase {
  int64_t m, n, k;
  ScaleBlock a_block = {}, b_block = {};  // Of A [M, K], and of the transpose of B [K, N].
  bool trans_a, trans_b;
  bool deep;  // Whether numbers of the summed dim are neighbours in memory, or those of the other.
  bool with_bias;
};

ScaleBlock Transposed(const ScaleBlock& block) {
  return {.rows = block.columns, .columns = block.rows};
}

template <typename A, typename C>
void ExpectProduct(const ProductCase& of) {
  const auto [m, n, k] = std::tuple(of.m, of.n, of.k);
  const auto [trans_a, trans_b, with_bias] = std::tuple(of.trans_a, of.trans_b, of.with_bias);
  SCOPED_TRACE(::testing::Message()
               << DTypeOf<C>::value << ' ' << of.a_block.rows << 'x' << of.a_block.columns << ' '
               << of.b_block.rows << 'x' << of.b_block.columns << ' ' << trans_a << trans_b
               << of.deep << with_bias << " M " << m);
  auto a = Round(Normal<A>(trans_a ? Shape{k, m} : Shape{m, k}, 1), DType::kE5M2,
                 trans_a ? Transposed(of.a_block) : of.a_block);
  auto b = Round(Normal<A>(trans_b ? Shape{n, k} : Shape{k, n}, 2), DType::kE4M3,
                 trans_b ? of.b_block : Transposed(of.b_block));
  const auto bias = Normal<C>({n}, 3);
  // Rows of A, and columns of B.
  std::vector<double> lines_a(size_t(m * k)), lines_b(size_t(n * k));
  for (int64_t j = 0; j < k; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      lines_a[size_t(i * k + j)] = a.At(trans_a ? j * m + i : i * k + j);
    }
    for (int64_t i = 0; i < n; ++i) {
      lines_b[size_t(i * k + j)] = b.At(trans_b ? i * k + j : j * n + i);
    }
  }
  auto want = Zeros<double>({m, n});
  for (int64_t i = 0; i < m * n; ++i) {
    const auto line_a = lines_a.begin() + i / n * k, line_b = lines_b.begin() + i % n * k;
    want.v[size_t(i)] = std::inner_product(line_a, line_a + k, line_b, 0.0);
    if (with_bias) want.v[size_t(i)] += double(Accumulate<C>(bias.v[size_t(i % n)]));
  }
  auto got = Poison<C>({m, n});
  ScaledMatMulArgs args = ProductOf(a, b, got);
  args.trans_a = trans_a;
  args.trans_b = trans_b;
  args.a_by_columns = trans_a == of.deep;
  args.b_by_columns = trans_b != of.deep;
  if (args.a_by_columns) args.a = a.lying_by_columns();
  if (args.b_by_columns) args.b = b.lying_by_columns();
  if (with_bias) args.bias = bias;
  const double tolerance = ToleranceOfProduct(DTypeOf<C>::value, k);
  Call(args);
  ExpectClose(Converted<double>(got).v, want.v, tolerance);
  if (with_bias || DTypeOf<C>::value == DType::kBF16) return;
  args.write = Write::kAdd;
  Call(args);
  for (double& x : want.v) x *= 2;
  ExpectClose(Converted<double>(got).v, want.v, tolerance);
}

// Calls f with each combination of what is transposed, how the numbers lie, and whether there is a
// bias.
template <typename F>
void ForEachOrder(const F& f) {
  for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
    f(ProductCase{.m = 13,
                  .n = 21,
                  .k = 34,
                  .trans_a = bool(bits & 1),
                  .trans_b = bool(bits & 2),
                  .deep = bool(bits & 4),
                  .with_bias = bool(bits & 8)});
  }
}

TEST(ScaledMatMul, IsTheProductOfTheRoundedNumbers) {
  for (const ScaleBlock& block : kBlocks) {
    ForEachOrder([&](ProductCase of) {
      of.a_block = of.b_block = block;
      ExpectProduct<double, double>(of);
      ExpectProduct<float, float>(of);
      ExpectProduct<float, bf16>(of);
    });
  }
}

// Those of the recipes, at dims that cuBLASLt multiplies: several blocks along each dim, whose
// number is no multiple of 4, and rests of blocks.
TEST(ScaledMatMul, MultipliesInTheScalesOfTheRecipes) {
  constexpr ScaleBlock kTensor{}, kRow{.rows = 1}, kLine{.rows = 1, .columns = 128};
  constexpr ScaleBlock kSquare{.rows = 128, .columns = 128};
  for (const auto& [a_block, b_block] :
       {std::pair(kTensor, kTensor), std::pair(kRow, kRow), std::pair(kLine, kSquare),
        std::pair(kSquare, kLine), std::pair(kLine, kLine)}) {
    ForEachOrder([&](ProductCase of) {
      if (!of.deep) return;
      of.m = 144, of.n = 272, of.k = 272;
      of.a_block = a_block, of.b_block = b_block;
      ExpectProduct<float, float>(of);
      ExpectProduct<float, bf16>(of);
    });
  }
}

// The product of a matrix [16, 32] whose numbers are all `x` and one [16, 32] of ones.
std::vector<float> ProductOfEqual(bf16 x, DType dtype, const ScaleBlock& block) {
  Array<bf16> of_a = Zeros<bf16>({16, 32}), of_b = Zeros<bf16>({16, 32});
  std::fill(of_a.v.begin(), of_a.v.end(), x);
  std::fill(of_b.v.begin(), of_b.v.end(), bf16(1.0f));
  auto a = Round(of_a, dtype, block), b = Round(of_b, DType::kE4M3, block);
  auto c = Poison<float>({16, 16});
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
      // A library may multiply the sum by one scale first, so that must be finite, too.
      for (const float x : {0x1p-100f, -0x1p-60f, 1.5f, 0x1.fep100f}) {
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

// As long as a recipe's, which no block of threads of a GPU moves at once.
TEST(AmaxHistory, MovesWhateverItsLength) {
  for (const int64_t steps : {1, 255, 256, 257, 1024}) {
    auto history = Zeros<float>({steps}), gradient = Poison<float>({steps});
    for (int64_t i = 0; i < steps; ++i) history.v[size_t(i)] = float(i);
    auto amax = Zeros<float>({steps});
    amax.v.back() = 5000;
    Call(AmaxHistoryGradientArgs{.amax = amax, .gradient = gradient, .write = Write::kOverwrite});
    StepState state{.finite = 1};
    Call(AmaxHistoryArgs{.history = history, .gradient = gradient, .state = &state});
    for (int64_t i = 0; i < steps; ++i) {
      ASSERT_EQ(history.v[size_t(i)], i + 1 == steps ? 5000 : float(i + 1)) << steps;
    }
  }
}

TEST(AmaxHistory, EndsWithTheGreatestOfAStepThatIsFinite) {
  for (const int64_t finite : {1, 0}) {
    ExpectHistory<double>(finite);
    ExpectHistory<float>(finite);
  }
}

}  // namespace trainyard::testing::quantize
