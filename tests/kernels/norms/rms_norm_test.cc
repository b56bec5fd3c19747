// Proves kernels/norms/rms_norm.h on the CPU: the gradient against numeric differentiation in f64,
// the lower precisions against f64, the norm of a sum against the two ops that it stands for.

#include "kernels/norms/rms_norm.h"

#include <cmath>

#include "kernels/elementwise/add.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::rms_norm {

struct Size {
  int64_t t, d;
};

struct Inputs {
  Array<double> x, gain, dy;
  double gain_offset = 0;
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
  Call(RmsNormForwardArgs{.x = x,
                          .gain = gain,
                          .eps = 1e-5,
                          .y = out.y,
                          .rstd = out.rstd,
                          .gain_offset = in.gain_offset},
       threads);
  Call(RmsNormBackwardArgs{.dy = dy,
                           .x = x,
                           .gain = gain,
                           .rstd = out.rstd,
                           .dx = out.dx,
                           .dgain = out.dgain,
                           .write = Write::kOverwrite,
                           .gain_offset = in.gain_offset},
       threads);
  return out;
}

class RmsNormTest : public ::testing::TestWithParam<Size> {};

TEST_P(RmsNormTest, BackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  const auto loss = [&] {
    auto y = Poison<double>(in.x.shape), rstd = Poison<double>({in.x.shape[0]});
    Call(RmsNormForwardArgs{.x = in.x, .gain = in.gain, .eps = 1e-5, .y = y, .rstd = rstd});
    return Dot(y, in.dy);
  };
  const auto got = Compute<double>(in);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dgain.v, in.gain.v, loss, 1e-8);
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

// Of a sum, in place: `sum` lies in the addend's memory, y in that of x, dx in that of dsum.
template <typename T>
struct OfSum {
  Array<T> sum, y, dx;
  Array<Accumulate<T>> rstd, dgain;
};

template <typename T>
OfSum<T> ComputeOfSum(const Inputs& in, const Array<double>& addend, const Array<double>& dsum,
                      int threads = 2) {
  using A = Accumulate<T>;
  const auto gain = Converted<T>(in.gain);
  const Shape rows = {in.x.shape[0]};
  OfSum<T> out{Converted<T>(addend), Converted<T>(in.x), Converted<T>(dsum), Poison<A>(rows),
               Poison<A>(gain.shape)};
  Call(RmsNormForwardArgs{.x = out.y,
                          .gain = gain,
                          .eps = 1e-5,
                          .y = out.y,
                          .rstd = out.rstd,
                          .addend = out.sum,
                          .sum = out.sum},
       threads);
  Call(RmsNormBackwardArgs{.dy = Converted<T>(in.dy),
                           .x = out.sum,
                           .gain = gain,
                           .rstd = out.rstd,
                           .dx = out.dx,
                           .dgain = out.dgain,
                           .write = Write::kOverwrite,
                           .dsum = out.dx},
       threads);
  return out;
}

Array<double> Addend(Size size) { return Normal<double>({size.t, size.d}, 11); }
Array<double> SumGradient(Size size) { return Normal<double>({size.t, size.d}, 12); }

TEST_P(RmsNormTest, OfASumBackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  auto addend = Addend(GetParam());
  const auto dsum = SumGradient(GetParam());
  const auto loss = [&] {
    const auto out = ComputeOfSum<double>(in, addend, dsum);
    return Dot(out.y, in.dy) + Dot(out.sum, dsum);
  };
  const auto got = ComputeOfSum<double>(in, addend, dsum);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dx.v, addend.v, loss, 1e-8);
  ExpectGradient(got.dgain.v, in.gain.v, loss, 1e-8);
}

// The gradient of the sum is rounded once, and the composition's twice.
template <typename T>
void ExpectOfASumIsAddThenNorm(Size size) {
  const auto addend = Addend(size), dsum = SumGradient(size);
  const auto got = ComputeOfSum<T>(Make(size), addend, dsum);
  Inputs in = Make(size);
  auto sum = Converted<T>(in.x);
  Call(AddArgs{.a = sum, .b = Converted<T>(addend), .y = sum});
  in.x = Converted<double>(sum);
  auto want = Compute<T>(in);
  EXPECT_EQ(Converted<double>(got.sum).v, Converted<double>(sum).v);
  EXPECT_EQ(Converted<double>(got.y).v, Converted<double>(want.y).v);
  EXPECT_EQ(got.rstd.v, want.rstd.v);
  EXPECT_EQ(got.dgain.v, want.dgain.v);
  Call(AddArgs{.a = want.dx, .b = Converted<T>(dsum), .y = want.dx});
  ExpectClose(Converted<double>(got.dx).v, Converted<double>(want.dx).v,
              Tolerance(DTypeOf<T>::value, 1));
}

TEST_P(RmsNormTest, OfASumIsAddThenNorm) {
  ExpectOfASumIsAddThenNorm<double>(GetParam());
  ExpectOfASumIsAddThenNorm<float>(GetParam());
  ExpectOfASumIsAddThenNorm<bf16>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormTest,
                         ::testing::Values(Size{1, 2}, Size{1, 8}, Size{3, 24}, Size{5, 131},
                                           Size{70, 3}));

// The formulas as the header has them.
Outputs<double> Plain(const Inputs& in) {
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  Outputs<double> out{Zeros<double>(in.x.shape), Zeros<double>(in.x.shape), Zeros<double>({t}),
                      Zeros<double>({d})};
  for (int64_t row = 0; row < t; ++row) {
    const double *x = &in.x.v[row * d], *dy = &in.dy.v[row * d], *gain = in.gain.v.data();
    double squares = 0, dot = 0;
    for (int64_t i = 0; i < d; ++i) squares += x[i] * x[i], dot += dy[i] * gain[i] * x[i];
    const double r = out.rstd.v[row] = 1 / std::sqrt(squares / double(d) + 1e-5);
    for (int64_t i = 0; i < d; ++i) {
      out.y.v[row * d + i] = x[i] * r * gain[i];
      out.dx.v[row * d + i] = r * (gain[i] * dy[i] - x[i] * r * r * dot / double(d));
      out.dgain.v[i] += dy[i] * x[i] * r;
    }
  }
  return out;
}

template <typename T>
void ExpectPlain(const Inputs& exact) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.gain), RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in);
  const auto want = Plain(in);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.rstd).v, want.rstd.v, Tolerance(accumulate, d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.dgain).v, want.dgain.v, Tolerance(accumulate, t + d));
}

// Wide and narrow rows, many and few: kernels divide each kind otherwise.
TEST(RmsNorm, LargeSizesMatchTheFormula) {
  for (const Size size : {Size{150, 7}, Size{9000, 8}, Size{3, 2056}, Size{2, 8192}, Size{2, 16384},
                          Size{2, 18432}, Size{2, 20007}}) {
    SCOPED_TRACE(size.d);
    ExpectPlain<double>(Make(size));
    ExpectPlain<float>(Make(size));
    ExpectPlain<bf16>(Make(size));
    ExpectOfASumIsAddThenNorm<float>(size);
    ExpectOfASumIsAddThenNorm<bf16>(size);
  }
}

TEST(RmsNorm, ZeroCentredGainsAreGainsLessOne) {
  const Inputs plain = Make({3, 24});
  Inputs centred = plain;
  for (double& gain : centred.gain.v) gain -= 1;
  centred.gain_offset = 1;
  const auto want = Compute<double>(plain), got = Compute<double>(centred);
  ExpectClose(got.y.v, want.y.v, 1e-14);
  ExpectClose(got.dx.v, want.dx.v, 1e-14);
  ExpectClose(got.dgain.v, want.dgain.v, 1e-14);
}

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

}  // namespace trainyard::testing::rms_norm
