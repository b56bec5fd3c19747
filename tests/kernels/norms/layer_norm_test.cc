// Proves kernels/norms/layer_norm.h on the CPU: the gradient against numeric differentiation in
// f64, the lower precisions against f64, the norm of a sum against the two ops that it stands for.

#include "kernels/norms/layer_norm.h"

#include <cmath>

#include "kernels/elementwise/add.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::layer_norm {

struct Size {
  int64_t t, d;
};

struct Inputs {
  Array<double> x, gain, bias, dy;
  double gain_offset = 0;
};

Inputs Make(Size size) {
  return {Normal<double>({size.t, size.d}, 1), Normal<double>({size.d}, 2),
          Normal<double>({size.d}, 4), Normal<double>({size.t, size.d}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> mean, rstd, dgain, dbias;
};

template <typename T>
void Backward(const Inputs& in, Write write, Outputs<T>& out, int threads) {
  Call(LayerNormBackwardArgs{.dy = Converted<T>(in.dy),
                             .x = Converted<T>(in.x),
                             .gain = Converted<T>(in.gain),
                             .mean = out.mean,
                             .rstd = out.rstd,
                             .dx = out.dx,
                             .dgain = out.dgain,
                             .dbias = out.dbias,
                             .write = write,
                             .gain_offset = in.gain_offset},
       threads);
}

template <typename T>
Outputs<T> Compute(const Inputs& in, int threads = 2) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), gain = Converted<T>(in.gain), bias = Converted<T>(in.bias);
  const Shape rows = {x.shape[0]};
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape),    Poison<A>(rows),
                 Poison<A>(rows),    Poison<A>(gain.shape), Poison<A>(gain.shape)};
  Call(LayerNormForwardArgs{.x = x,
                            .gain = gain,
                            .bias = bias,
                            .eps = 1e-5,
                            .y = out.y,
                            .mean = out.mean,
                            .rstd = out.rstd,
                            .gain_offset = in.gain_offset},
       threads);
  Backward(in, Write::kOverwrite, out, threads);
  return out;
}

class LayerNormTest : public ::testing::TestWithParam<Size> {};

TEST_P(LayerNormTest, BackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  const auto loss = [&] {
    auto y = Poison<double>(in.x.shape), mean = Poison<double>({in.x.shape[0]}), rstd = mean;
    Call(LayerNormForwardArgs{.x = in.x,
                              .gain = in.gain,
                              .bias = in.bias,
                              .eps = 1e-5,
                              .y = y,
                              .mean = mean,
                              .rstd = rstd});
    return Dot(y, in.dy);
  };
  const auto got = Compute<double>(in);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dgain.v, in.gain.v, loss, 1e-8);
  ExpectGradient(got.dbias.v, in.bias.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.gain), RoundedTo<T>(exact.bias),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in);
  const auto want = Compute<double>(in);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.rstd).v, want.rstd.v, Tolerance(accumulate, d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.dgain).v, want.dgain.v, Tolerance(accumulate, t + d));
  ExpectClose(Converted<double>(got.dbias).v, want.dbias.v, Tolerance(accumulate, t));
}

TEST_P(LayerNormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(Make(GetParam()));
  ExpectAgreesWithF64<bf16>(Make(GetParam()));
}

// Of a sum, in place: `sum` lies in the addend's memory, y in that of x, dx in that of dsum.
template <typename T>
struct OfSum {
  Array<T> sum, y, dx;
  Array<Accumulate<T>> mean, rstd, dgain, dbias;
};

template <typename T>
OfSum<T> ComputeOfSum(const Inputs& in, const Array<double>& addend, const Array<double>& dsum,
                      int threads = 2) {
  using A = Accumulate<T>;
  const auto gain = Converted<T>(in.gain), bias = Converted<T>(in.bias);
  const Shape rows = {in.x.shape[0]};
  OfSum<T> out{Converted<T>(addend), Converted<T>(in.x),    Converted<T>(dsum),   Poison<A>(rows),
               Poison<A>(rows),      Poison<A>(gain.shape), Poison<A>(gain.shape)};
  Call(LayerNormForwardArgs{.x = out.y,
                            .gain = gain,
                            .bias = bias,
                            .eps = 1e-5,
                            .y = out.y,
                            .mean = out.mean,
                            .rstd = out.rstd,
                            .addend = out.sum,
                            .sum = out.sum},
       threads);
  Call(LayerNormBackwardArgs{.dy = Converted<T>(in.dy),
                             .x = out.sum,
                             .gain = gain,
                             .mean = out.mean,
                             .rstd = out.rstd,
                             .dx = out.dx,
                             .dgain = out.dgain,
                             .dbias = out.dbias,
                             .write = Write::kOverwrite,
                             .dsum = out.dx},
       threads);
  return out;
}

Array<double> Addend(Size size) { return Normal<double>({size.t, size.d}, 11); }
Array<double> SumGradient(Size size) { return Normal<double>({size.t, size.d}, 12); }

TEST_P(LayerNormTest, OfASumBackwardMatchesNumericGradient) {
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
  ExpectGradient(got.dbias.v, in.bias.v, loss, 1e-8);
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
  EXPECT_EQ(got.mean.v, want.mean.v);
  EXPECT_EQ(got.dbias.v, want.dbias.v);
  Call(AddArgs{.a = want.dx, .b = Converted<T>(dsum), .y = want.dx});
  ExpectClose(Converted<double>(got.dx).v, Converted<double>(want.dx).v,
              Tolerance(DTypeOf<T>::value, 1));
}

TEST_P(LayerNormTest, OfASumIsAddThenNorm) {
  ExpectOfASumIsAddThenNorm<double>(GetParam());
  ExpectOfASumIsAddThenNorm<float>(GetParam());
  ExpectOfASumIsAddThenNorm<bf16>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNormTest,
                         ::testing::Values(Size{1, 8}, Size{3, 24}, Size{5, 131}, Size{70, 3}));

// The formulas as the header has them.
Outputs<double> Plain(const Inputs& in) {
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  const auto zeros = Zeros<double>(in.x.shape);
  const auto of_rows = Zeros<double>({t}), of_columns = Zeros<double>({d});
  Outputs<double> out{zeros, zeros, of_rows, of_rows, of_columns, of_columns};
  for (int64_t row = 0; row < t; ++row) {
    const double *x = &in.x.v[row * d], *dy = &in.dy.v[row * d], *gain = in.gain.v.data();
    double sum = 0, squares = 0, g = 0, dot = 0;
    for (int64_t i = 0; i < d; ++i) sum += x[i];
    const double mean = out.mean.v[row] = sum / double(d);
    for (int64_t i = 0; i < d; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double r = out.rstd.v[row] = 1 / std::sqrt(squares / double(d) + 1e-5);
    for (int64_t i = 0; i < d; ++i) {
      g += dy[i] * gain[i] / double(d);
      dot += dy[i] * gain[i] * (x[i] - mean) * r / double(d);
    }
    for (int64_t i = 0; i < d; ++i) {
      const double hhat = (x[i] - mean) * r;
      out.y.v[row * d + i] = hhat * gain[i] + in.bias.v[i];
      out.dx.v[row * d + i] = r * (dy[i] * gain[i] - g - hhat * dot);
      out.dgain.v[i] += dy[i] * hhat;
      out.dbias.v[i] += dy[i];
    }
  }
  return out;
}

template <typename T>
void ExpectPlain(const Inputs& exact) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.gain), RoundedTo<T>(exact.bias),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in);
  const auto want = Plain(in);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  const int64_t t = in.x.shape[0], d = in.x.shape[1];
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.rstd).v, want.rstd.v, Tolerance(accumulate, d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, d));
  ExpectClose(Converted<double>(got.dgain).v, want.dgain.v, Tolerance(accumulate, t + d));
  ExpectClose(Converted<double>(got.dbias).v, want.dbias.v, Tolerance(accumulate, t));
}

// Wide and narrow rows, many and few: kernels divide each kind otherwise.
TEST(LayerNorm, LargeSizesMatchTheFormula) {
  for (const Size size : {Size{150, 7}, Size{9000, 8}, Size{3, 2056}, Size{2, 4096}, Size{2, 8192},
                          Size{2, 12288}, Size{2, 16384}, Size{2, 20007}}) {
    SCOPED_TRACE(size.d);
    ExpectPlain<double>(Make(size));
    ExpectPlain<float>(Make(size));
    ExpectPlain<bf16>(Make(size));
    ExpectOfASumIsAddThenNorm<float>(size);
    ExpectOfASumIsAddThenNorm<bf16>(size);
  }
}

// Of bf16, 18,432 columns are those of Nemotron-4 340B, which on a GPU have a form of their own, as
// have 9,000 columns of f32 (kernels/cuda/norms/norm_plans.h).
TEST(LayerNorm, TheWidestRowsAgreeWithF64) {
  ExpectAgreesWithF64<bf16>(Make({3, 18432}));
  ExpectAgreesWithF64<float>(Make({3, 9000}));
  ExpectOfASumIsAddThenNorm<bf16>({2, 18432});
}

// A variance taken as mean square minus squared mean would lose all digits here.
TEST(LayerNorm, LargeMeanKeepsTheVariance) {
  auto in = Make({4, 64});
  for (double& x : in.x.v) x += 1000;
  in.x = RoundedTo<float>(in.x);
  const auto got = Compute<float>(in);
  ExpectClose(Converted<double>(got.rstd).v, Compute<double>(in).rstd.v, 1e-4);
}

TEST(LayerNorm, ZeroCentredGainsAreGainsLessOne) {
  const Inputs plain = Make({3, 24});
  Inputs centred = plain;
  for (double& gain : centred.gain.v) gain -= 1;
  centred.gain_offset = 1;
  const auto want = Compute<double>(plain), got = Compute<double>(centred);
  ExpectClose(got.y.v, want.y.v, 1e-14);
  ExpectClose(got.dx.v, want.dx.v, 1e-14);
  ExpectClose(got.dgain.v, want.dgain.v, 1e-14);
  ExpectClose(got.dbias.v, want.dbias.v, 1e-14);
}

TEST(LayerNorm, GradientsOfALaterMicroBatchAreAdded) {
  const Inputs in = Make({3, 24});
  auto out = Compute<double>(in);
  const auto first = out;
  Backward(in, Write::kAdd, out, 2);
  for (size_t i = 0; i < first.dgain.v.size(); ++i) {
    EXPECT_DOUBLE_EQ(out.dgain.v[i], 2 * first.dgain.v[i]);
    EXPECT_DOUBLE_EQ(out.dbias.v[i], 2 * first.dbias.v[i]);
  }
}

TEST(LayerNorm, ThreadsDoNotChangeBits) {
  const Inputs in = Make({200, 300});
  const auto one = Compute<float>(in, 1), three = Compute<float>(in, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dgain.v, three.dgain.v);
}

TEST(LayerNormDeathTest, NamesTheArgumentOfWrongShape) {
  const Inputs in = Make({2, 8});
  auto y = Zeros<double>({2, 8}), mean = Zeros<double>({2}), rstd = Zeros<double>({3});
  EXPECT_DEATH(Call(LayerNormForwardArgs{.x = in.x,
                                         .gain = in.gain,
                                         .bias = in.bias,
                                         .eps = 1e-5,
                                         .y = y,
                                         .mean = mean,
                                         .rstd = rstd}),
               "layer_norm rstd: wanted f64 with 2 elements");
}

}  // namespace trainyard::testing::layer_norm
