// Proves kernels/norms/gated_norm.h: the norm against its formula, the gradients against numeric
// differentiation in f64, the lower precisions against f64.

#include "kernels/norms/gated_norm.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::gated_norm {

constexpr double kEps = 1e-3;

struct Size {
  int64_t t, d, groups;
};

struct Inputs {
  Array<double> x, z, gain, dy;
};

Inputs Make(const Size& s) {
  return {Normal<double>({s.t, s.d}, 1), Normal<double>({s.t, s.d}, 2), Normal<double>({s.d}, 3),
          Normal<double>({s.t, s.d}, 4)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx, dz;
  Array<Accumulate<T>> rstd, dgain;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, int64_t groups, int threads = 2,
                   std::optional<double> before = {}) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), z = Converted<T>(in.z), dy = Converted<T>(in.dy);
  const auto gain = Converted<T>(in.gain);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape), Poison<T>(x.shape),
                 Poison<A>({x.shape[0], groups}), Filled<A>(gain.shape, A(before.value_or(NAN)))};
  Call(GatedNormForwardArgs{.x = x,
                            .z = z,
                            .gain = gain,
                            .groups = groups,
                            .eps = kEps,
                            .y = out.y,
                            .rstd = out.rstd},
       threads);
  Call(GatedNormBackwardArgs{.dy = dy,
                             .x = x,
                             .z = z,
                             .gain = gain,
                             .rstd = out.rstd,
                             .groups = groups,
                             .dx = out.dx,
                             .dz = out.dz,
                             .dgain = out.dgain,
                             .write = before.has_value() ? Write::kAdd : Write::kOverwrite},
       threads);
  return out;
}

class GatedNormTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Inputs in = Make(size);
};

TEST_P(GatedNormTest, IsTheFormula) {
  const int64_t width = size.d / size.groups;
  auto want = Zeros<double>(in.x.shape);
  for (int64_t i = 0; i < size.t * size.groups; ++i) {
    double squares = 0;
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      const double z = in.z.v[size_t(c)];
      want.v[size_t(c)] = in.x.v[size_t(c)] * z / (1 + std::exp(-z));
      squares += want.v[size_t(c)] * want.v[size_t(c)];
    }
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      want.v[size_t(c)] *=
          in.gain.v[size_t(c % size.d)] / std::sqrt(squares / double(width) + kEps);
    }
  }
  ExpectClose(Compute<double>(in, size.groups).y.v, want.v, 1e-14);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, const Size& size) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.z), RoundedTo<T>(exact.gain),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size.groups);
  const auto want = Compute<double>(in, size.groups);
  const double tolerance = Tolerance(DTypeOf<T>::value, size.d / size.groups);
  ExpectClose(Converted<double>(got.y).v, want.y.v, tolerance);
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, tolerance);
  ExpectClose(Converted<double>(got.dz).v, want.dz.v, tolerance);
  ExpectClose(Converted<double>(got.dgain).v, want.dgain.v,
              Tolerance(DType::kF32, size.t + size.d));
}

TEST_P(GatedNormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in, size);
  ExpectAgreesWithF64<bf16>(in, size);
}

// One group; odd widths; groups wider than a block of a GPU takes at once, in packs or
// one by one; more rows than runs.
INSTANTIATE_TEST_SUITE_P(Sizes, GatedNormTest,
                         ::testing::Values(Size{1, 4, 1}, Size{3, 15, 3}, Size{5, 64, 2},
                                           Size{2, 5000, 2}, Size{2, 2602, 2}, Size{130, 32, 4}));

TEST(GatedNorm, BackwardMatchesNumericGradient) {
  const Size size = {3, 10, 2};
  Inputs in = Make(size);
  const auto loss = [&] { return Dot(Compute<double>(in, size.groups).y, in.dy); };
  const auto got = Compute<double>(in, size.groups);
  ExpectClose(got.dx.v, NumericGrad(in.x.v, loss), 1e-8);
  ExpectClose(got.dz.v, NumericGrad(in.z.v, loss), 1e-8);
  ExpectClose(got.dgain.v, NumericGrad(in.gain.v, loss), 1e-8);
  const auto added = Compute<double>(in, size.groups, 2, /*before=*/0.5);
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(added.dgain.v[i], got.dgain.v[i] + 0.5, 1e-12);
}

// Rows that a block of a GPU holds, and rows that it reads twice.
TEST(GatedNorm, GradientsMayReplaceTheInputs) {
  for (const Size size : {Size{3, 10, 2}, Size{2, 20000, 2}}) {
    Inputs in = Make(size);
    const auto want = Compute<double>(in, size.groups);
    auto dgain = Poison<double>(in.gain.shape);
    Call(GatedNormBackwardArgs{.dy = in.dy,
                               .x = in.x,
                               .z = in.z,
                               .gain = in.gain,
                               .rstd = want.rstd,
                               .groups = size.groups,
                               .dx = in.x,
                               .dz = in.z,
                               .dgain = dgain,
                               .write = Write::kOverwrite});
    EXPECT_EQ(in.x.v, want.dx.v);
    EXPECT_EQ(in.z.v, want.dz.v);
  }
}

TEST(GatedNorm, ThreadsDoNotChangeBits) {
  const Size size = {140, 96, 3};
  const Inputs in = Make(size);
  const auto one = Compute<float>(in, size.groups, 1), three = Compute<float>(in, size.groups, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dz.v, three.dz.v);
  EXPECT_EQ(one.dgain.v, three.dgain.v);
}

TEST(GatedNormDeathTest, NamesTheArgumentOfWrongShape) {
  const Inputs in = Make({2, 10, 2});
  EXPECT_DEATH(Compute<double>(in, 3), "gated_norm groups: 3 of 10 columns");
}

}  // namespace trainyard::testing::gated_norm
