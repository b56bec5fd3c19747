// Proves kernels/norms/magnitude.h: gains and outputs against the formula, the gradients against
// numeric differentiation in f64, the lower precisions against f64.

#include "kernels/norms/magnitude.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::magnitude {

struct Size {
  int64_t t, n;
};

struct Inputs {
  Array<double> squares, offset, z, dy;
};

Inputs Make(const Size& s) {
  Inputs in = {Normal<double>({s.n, 2}, 1), Normal<double>({s.n}, 2), Normal<double>({s.t, s.n}, 3),
               Normal<double>({s.t, s.n}, 4)};
  for (double& square : in.squares.v) square = 0.5 + square * square;
  return in;
}

template <typename T>
struct Outputs {
  Array<Accumulate<T>> gain, inverse;
  Array<T> y, dz;
  Array<Accumulate<T>> doffset;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, int threads = 2, std::optional<double> before = {}) {
  using A = Accumulate<T>;
  const auto squares = Converted<A>(in.squares);
  const auto offset = Converted<T>(in.offset), z = Converted<T>(in.z), dy = Converted<T>(in.dy);
  Outputs<T> out{Poison<A>(offset.shape), Poison<A>(offset.shape), Poison<T>(z.shape),
                 Poison<T>(z.shape), Filled<A>(offset.shape, A(before.value_or(NAN)))};
  Call(
      MagnitudeGainArgs{
          .squares = squares, .offset = offset, .gain = out.gain, .inverse = out.inverse},
      threads);
  Call(MagnitudeForwardArgs{.z = z, .gain = out.gain, .y = out.y}, threads);
  Call(MagnitudeBackwardArgs{.dy = dy,
                             .z = z,
                             .gain = out.gain,
                             .inverse = out.inverse,
                             .dz = out.dz,
                             .doffset = out.doffset,
                             .write = before.has_value() ? Write::kAdd : Write::kOverwrite},
       threads);
  return out;
}

class MagnitudeTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Inputs in = Make(size);
};

TEST_P(MagnitudeTest, IsTheFormula) {
  auto want = Zeros<double>(in.z.shape);
  for (size_t i = 0; i < want.v.size(); ++i) {
    const size_t n = i % size_t(size.n);
    want.v[i] = in.z.v[i] * (std::sqrt(in.squares.v[2 * n]) + in.offset.v[n]) /
                std::sqrt(in.squares.v[2 * n + 1]);
  }
  ExpectClose(Compute<double>(in).y.v, want.v, 1e-14);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact) {
  using A = Accumulate<T>;
  const Inputs in = {RoundedTo<A>(exact.squares), RoundedTo<T>(exact.offset), RoundedTo<T>(exact.z),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in);
  const auto want = Compute<double>(in);
  const double tolerance = Tolerance(DTypeOf<T>::value, 1);
  ExpectClose(Converted<double>(got.y).v, want.y.v, tolerance);
  ExpectClose(Converted<double>(got.dz).v, want.dz.v, tolerance);
  ExpectClose(Converted<double>(got.doffset).v, want.doffset.v,
              Tolerance(DType::kF32, in.z.shape[0]));
}

TEST_P(MagnitudeTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in);
  ExpectAgreesWithF64<bf16>(in);
}

// Odd widths; rows wider than a block of a GPU takes at once, in packs or one by one; more rows
// than runs.
INSTANTIATE_TEST_SUITE_P(Sizes, MagnitudeTest,
                         ::testing::Values(Size{1, 1}, Size{3, 15}, Size{5, 64}, Size{2, 5000},
                                           Size{2, 2602}, Size{130, 32}));

TEST(Magnitude, BackwardMatchesNumericGradient) {
  Inputs in = Make({3, 10});
  const auto loss = [&] { return Dot(Compute<double>(in).y, in.dy); };
  const auto got = Compute<double>(in);
  ExpectClose(got.dz.v, NumericGrad(in.z.v, loss), 1e-8);
  ExpectClose(got.doffset.v, NumericGrad(in.offset.v, loss), 1e-8);
  const auto added = Compute<double>(in, 2, /*before=*/0.5);
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(added.doffset.v[i], got.doffset.v[i] + 0.5, 1e-12);
}

// Without an adapter's change and without an offset, nothing changes, to the bit.
TEST(Magnitude, OfTheWeightItselfIsOne) {
  Inputs in = Make({3, 50});
  for (size_t n = 0; n < 50; ++n) in.squares.v[2 * n + 1] = in.squares.v[2 * n], in.offset.v[n] = 0;
  EXPECT_EQ(Compute<bf16>(in).y.v, Converted<bf16>(in.z).v);
}

TEST(Magnitude, OfARowOfNormZeroIsZero) {
  Inputs in = Make({2, 3});
  in.squares.v[3] = 0;
  const auto got = Compute<float>(in);
  EXPECT_EQ(got.y.v[1], 0);
  EXPECT_EQ(got.dz.v[4], 0);
  EXPECT_EQ(got.doffset.v[1], 0);
}

// Rows that a block of a GPU holds, and rows that it reads one by one.
TEST(Magnitude, TheGradientMayReplaceEitherInput) {
  for (const Size size : {Size{3, 10}, Size{2, 20000}}) {
    const Inputs in = Make(size);
    const auto want = Compute<double>(in);
    for (const bool of_z : {false, true}) {
      auto dy = in.dy, z = in.z;
      auto doffset = Poison<double>(in.offset.shape);
      Call(MagnitudeBackwardArgs{.dy = dy,
                                 .z = z,
                                 .gain = want.gain,
                                 .inverse = want.inverse,
                                 .dz = of_z ? z : dy,
                                 .doffset = doffset,
                                 .write = Write::kOverwrite});
      EXPECT_EQ((of_z ? z : dy).v, want.dz.v);
      EXPECT_EQ(doffset.v, want.doffset.v);
    }
  }
}

TEST(Magnitude, ThreadsDoNotChangeBits) {
  const Inputs in = Make({140, 96});
  const auto one = Compute<float>(in, 1), three = Compute<float>(in, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dz.v, three.dz.v);
  EXPECT_EQ(one.doffset.v, three.doffset.v);
}

TEST(MagnitudeDeathTest, NamesTheArgumentOfWrongShape) {
  Inputs in = Make({2, 10});
  in.offset = Normal<double>({9}, 2);
  EXPECT_DEATH(Compute<double>(in), "magnitude offset: wanted f64 with 10 elements");
}

}  // namespace trainyard::testing::magnitude
