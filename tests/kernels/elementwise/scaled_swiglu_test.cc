// Proves kernels/elementwise/scaled_swiglu.h on the CPU: the gradients against numeric
// differentiation in f64, the lower precisions against f64, and that rows beyond the count are left
// alone.

#include "kernels/elementwise/scaled_swiglu.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/swiglu.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::scaled_swiglu {

struct Size {
  int64_t r, f;
  int32_t count;
};

struct Inputs {
  Array<double> x, w, dy;
};

Inputs Make(Size size) {
  return {Normal<double>({size.r, 2 * size.f}, 1), Normal<double>({size.r}, 2),
          Normal<double>({size.r, size.f}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> dw;
};

// Outputs begin as zero.
template <typename T>
Outputs<T> Compute(const Inputs& in, int32_t rows, int threads = 2, double limit = 0) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), dy = Converted<T>(in.dy);
  const auto w = Converted<A>(in.w);
  const Array<int32_t> count = {{1}, {rows}};
  Outputs<T> out{Zeros<T>(dy.shape), Zeros<T>(x.shape), Zeros<A>(w.shape)};
  Call(ScaledSwiGluForwardArgs{.x = x, .w = w, .count = count, .y = out.y, .limit = limit},
       threads);
  Call(
      ScaledSwiGluBackwardArgs{
          .dy = dy, .x = x, .w = w, .count = count, .dx = out.dx, .dw = out.dw, .limit = limit},
      threads);
  return out;
}

class ScaledSwiGluTest : public ::testing::TestWithParam<Size> {
 protected:
  Inputs in = Make(GetParam());
};

TEST_P(ScaledSwiGluTest, BackwardMatchesNumericGradient) {
  const int32_t count = GetParam().count;
  const auto loss = [&] { return Dot(Compute<double>(in, count).y, in.dy); };
  const auto got = Compute<double>(in, count);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dw.v, in.w.v, loss, 1e-8);
}

// Some elements lie beyond the limit, and none within a step of the differences from it.
TEST_P(ScaledSwiGluTest, ClampedBackwardMatchesNumericGradient) {
  const int32_t count = GetParam().count;
  for (double& x : in.x.v) {
    if (std::abs(std::abs(x) - 0.7) < 0.02) x *= 1.1;
  }
  const auto loss = [&] { return Dot(Compute<double>(in, count, 2, 0.7).y, in.dy); };
  const auto got = Compute<double>(in, count, 2, 0.7);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dw.v, in.w.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, const Size& size, double limit = 0) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<float>(exact.w), RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size.count, 2, limit);
  const auto want = Compute<double>(in, size.count, 2, limit);
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dw).v, want.dw.v, Tolerance(DType::kF32, size.f));
}

TEST_P(ScaledSwiGluTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in, GetParam());
  ExpectAgreesWithF64<bf16>(in, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, ScaledSwiGluTest,
                         ::testing::Values(Size{1, 1, 1}, Size{3, 5, 2}, Size{7, 64, 7},
                                           Size{65, 9, 40}));

// Widths and numbers of rows beyond a block and a grid of a GPU, too.
TEST(ScaledSwiGlu, WithFactorsOfOneIsSwiGlu) {
  for (const Size size : {Size{9, 21, 9}, Size{3, 2056, 3}, Size{2, 301, 2}, Size{8500, 1, 8500}}) {
    Inputs in = Make(size);
    in.w = Filled<double>({size.r}, 1);
    auto y = Poison<double>(in.dy.shape), dx = Poison<double>(in.x.shape);
    Call(SwiGluForwardArgs{.x = in.x, .y = y});
    Call(SwiGluBackwardArgs{.dy = in.dy, .x = in.x, .dx = dx});
    const auto got = Compute<double>(in, size.count);
    ExpectClose(got.y.v, y.v, Tolerance(DType::kF64, 1));
    ExpectClose(got.dx.v, dx.v, Tolerance(DType::kF64, 1));
    ExpectAgreesWithF64<float>(in, size);
    ExpectAgreesWithF64<bf16>(in, size);
  }
}

// By the definition, with gate and up on either side of their limits. A gate has no lower one.
TEST(ScaledSwiGlu, ClampsGateAboveAndUpOnBothSides) {
  constexpr double kLimit = 2;
  const std::vector<double> points = {-5, -2, -1, 0.5, 2, 3};
  for (const double gate : points) {
    for (const double up : points) {
      const Inputs in = {{{1, 2}, {gate, up}}, {{1}, {3}}, {{1, 1}, {1}}};
      const auto got = Compute<double>(in, 1, 1, kLimit);
      const double g = std::min(gate, kLimit), u = std::clamp(up, -kLimit, kLimit);
      const double s = 1 / (1 + std::exp(-1.702 * g)), h = g * s * (u + 1);
      const double dg = gate > kLimit ? 0 : 3 * (u + 1) * s * (1 + 1.702 * g * (1 - s));
      const double du = std::abs(up) > kLimit ? 0 : 3 * g * s;
      EXPECT_NEAR(got.y.v[0], 3 * h, 1e-14) << gate << ' ' << up;
      EXPECT_NEAR(got.dw.v[0], h, 1e-14) << gate << ' ' << up;
      EXPECT_NEAR(got.dx.v[0], dg, 1e-14) << gate << ' ' << up;
      EXPECT_NEAR(got.dx.v[1], du, 1e-14) << gate << ' ' << up;
    }
  }
}

// Widths and rows as below, beyond a block and a grid.
TEST(ScaledSwiGlu, ClampedAgreesWithF64InEveryWidth) {
  for (const Size size : {Size{9, 21, 9}, Size{3, 5, 2}, Size{65, 9, 40}, Size{3, 2056, 3},
                          Size{2, 301, 2}, Size{8500, 1, 8500}}) {
    ExpectAgreesWithF64<double>(Make(size), size, 0.7);
    ExpectAgreesWithF64<float>(Make(size), size, 0.7);
    ExpectAgreesWithF64<bf16>(Make(size), size, 0.7);
  }
}

// Beyond the count the inputs may be anything, and outputs are what they were.
TEST(ScaledSwiGlu, RowsThatDoNotCountAreLeftAlone) {
  const Array<float> x = {{2, 2}, {1, 2, NAN, NAN}}, w = {{2}, {2, NAN}}, dy = {{2, 1}, {1, NAN}};
  const Array<int32_t> count = {{1}, {1}};
  auto y = Filled<float>({2, 1}, 7), dx = Filled<float>({2, 2}, 7), dw = Filled<float>({2}, 7);
  Call(ScaledSwiGluForwardArgs{.x = x, .w = w, .count = count, .y = y});
  Call(ScaledSwiGluBackwardArgs{.dy = dy, .x = x, .w = w, .count = count, .dx = dx, .dw = dw});
  EXPECT_NE(y.v[0], 7);
  EXPECT_NE(dw.v[0], 7);
  EXPECT_EQ(y.v[1], 7);
  EXPECT_EQ((std::vector<float>{dx.v[2], dx.v[3], dw.v[1]}), std::vector<float>(3, 7));
}

TEST(ScaledSwiGlu, GradientsMayReplaceTheInputs) {
  Inputs in = Make({3, 5, 3});
  const auto want = Compute<double>(in, 3);
  const Array<int32_t> count = {{1}, {3}};
  Call(ScaledSwiGluBackwardArgs{
      .dy = in.dy, .x = in.x, .w = in.w, .count = count, .dx = in.x, .dw = in.w});
  EXPECT_EQ(in.x.v, want.dx.v);
  EXPECT_EQ(in.w.v, want.dw.v);
}

TEST(ScaledSwiGlu, ThreadsDoNotChangeBits) {
  const Inputs in = Make({200, 300, 150});
  const auto one = Compute<float>(in, 150, 1), three = Compute<float>(in, 150, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dw.v, three.dw.v);
}

TEST(ScaledSwiGluDeathTest, NamesTheArgumentThatDoesNotFit) {
  Inputs in = Make({3, 5, 3});
  EXPECT_DEATH(Compute<double>(in, 4), "scaled_swiglu count: 4 of 3");
  EXPECT_DEATH(Compute<double>(in, -1), "scaled_swiglu count: -1 of 3");
  EXPECT_DEATH(Compute<double>(in, 3, 2, -1), "scaled_swiglu limit: -1");
  in.w = Zeros<double>({2});
  EXPECT_DEATH(Compute<double>(in, 3), "scaled_swiglu w: wanted f64 with 3 elements");
}

}  // namespace trainyard::testing::scaled_swiglu
