// Proves kernels/rms_norm.h on the CPU: the gradient against numeric differentiation in f64, the
// lower precisions against f64.

#include "kernels/rms_norm.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

struct Size {
  int64_t t, d;
};

struct Inputs {
  Array<double> x, gain, dy;
};

Inputs Make(Size size) {
  return {Normal<double>({size.t, size.d}, 1), Normal<double>({size.d}, 2),
          Normal<double>({size.t, size.d}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> rstd, dgain;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, int threads = 2) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), gain = Converted<T>(in.gain), dy = Converted<T>(in.dy);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape), Poison<A>({x.shape[0]}),
                 Poison<A>(gain.shape)};
  Call(RmsNormForwardArgs{.x = x, .gain = gain, .eps = 1e-5, .y = out.y, .rstd = out.rstd},
       threads);
  Call(RmsNormBackwardArgs{.dy = dy,
                           .x = x,
                           .gain = gain,
                           .rstd = out.rstd,
                           .dx = out.dx,
                           .dgain = out.dgain,
                           .write = Write::kOverwrite},
       threads);
  return out;
}

class RmsNormTest : public ::testing::TestWithParam<Size> {};

TEST_P(RmsNormTest, BackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  const auto loss = [&] { return Dot(Compute<double>(in).y, in.dy); };
  const auto want_dx = NumericGrad(in.x.v, loss), want_dgain = NumericGrad(in.gain.v, loss);
  const auto got = Compute<double>(in);
  ExpectClose(got.dx.v, want_dx, 1e-8);
  ExpectClose(got.dgain.v, want_dgain, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.gain), RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in);
  const auto want = Compute<double>(in);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.rstd).v, want.rstd.v, Tolerance(accumulate, d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.dgain).v, want.dgain.v, Tolerance(accumulate, t + d));
}

TEST_P(RmsNormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(Make(GetParam()));
  ExpectAgreesWithF64<bf16>(Make(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormTest,
                         ::testing::Values(Size{1, 2}, Size{1, 8}, Size{3, 24}, Size{5, 131},
                                           Size{150, 7}));

TEST(RmsNorm, GainGradientOfALaterMicroBatchIsAdded) {
  const Inputs in = Make({3, 24});
  auto out = Compute<double>(in);
  const auto first = out.dgain.v;
  Call(RmsNormBackwardArgs{.dy = in.dy,
                           .x = in.x,
                           .gain = in.gain,
                           .rstd = out.rstd,
                           .dx = out.dx,
                           .dgain = out.dgain,
                           .write = Write::kAdd});
  for (size_t i = 0; i < first.size(); ++i) EXPECT_DOUBLE_EQ(out.dgain.v[i], 2 * first[i]);
}

TEST(RmsNorm, OutputMayBeTheInput) {
  const Inputs in = Make({3, 24});
  auto x = in.x;
  auto rstd = Poison<double>({3});
  Call(RmsNormForwardArgs{.x = x, .gain = in.gain, .eps = 1e-5, .y = x, .rstd = rstd});
  EXPECT_EQ(x.v, Compute<double>(in).y.v);
}

TEST(RmsNorm, ThreadsDoNotChangeBits) {
  const Inputs in = Make({200, 300});
  const auto one = Compute<float>(in, 1), three = Compute<float>(in, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dgain.v, three.dgain.v);
}

TEST(RmsNormDeathTest, NamesTheArgumentOfWrongShape) {
  const Inputs in = Make({2, 8});
  auto y = Zeros<double>({2, 8}), rstd = Zeros<double>({2}), wide = Zeros<double>({16});
  EXPECT_DEATH(Call(RmsNormForwardArgs{.x = in.x, .gain = wide, .eps = 1e-5, .y = y, .rstd = rstd}),
               "rms_norm gain: wanted f64 with 8 elements, got f64 \\[16\\]");
  EXPECT_DEATH(Call(RmsNormBackwardArgs{.dy = in.dy,
                                        .x = in.x,
                                        .gain = in.gain,
                                        .rstd = rstd,
                                        .dx = y,
                                        .dgain = wide,
                                        .write = Write::kAdd}),
               "rms_norm dgain");
}

}  // namespace
}  // namespace trainyard::testing
