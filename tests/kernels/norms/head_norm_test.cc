// Proves kernels/norms/head_norm.h on the CPU: every head against rms_norm.h, the gradients against
// numeric differentiation in f64, the lower precisions against f64.

#include "kernels/norms/head_norm.h"

#include <cmath>

#include "kernels/attention/rope.h"
#include "kernels/norms/rms_norm.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::head_norm {

struct Size {
  int64_t t, a, g, d;
  int64_t width() const { return (a + 2 * g) * d; }
};

struct Inputs {
  Array<double> x, q_gain, k_gain, dy;
  double gain_offset = 0;
};

Inputs Make(Size size) {
  return {Normal<double>({size.t, size.width()}, 1), Normal<double>({size.d}, 2),
          Normal<double>({size.d}, 3), Normal<double>({size.t, size.width()}, 4)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> rstd, dq_gain, dk_gain;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, Size size, int passes = 1, int threads = 2) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), dy = Converted<T>(in.dy);
  const auto q_gain = Converted<T>(in.q_gain), k_gain = Converted<T>(in.k_gain);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape), Poison<A>({size.t, size.a + size.g}),
                 Poison<A>({size.d}), Poison<A>({size.d})};
  Call(HeadNormForwardArgs{.x = x,
                           .q_gain = q_gain,
                           .k_gain = k_gain,
                           .heads = size.a,
                           .kv_heads = size.g,
                           .eps = 1e-5,
                           .y = out.y,
                           .rstd = out.rstd,
                           .gain_offset = in.gain_offset},
       threads);
  for (int pass = 0; pass < passes; ++pass) {
    Call(HeadNormBackwardArgs{.dy = dy,
                              .x = x,
                              .q_gain = q_gain,
                              .k_gain = k_gain,
                              .rstd = out.rstd,
                              .heads = size.a,
                              .kv_heads = size.g,
                              .dx = out.dx,
                              .dq_gain = out.dq_gain,
                              .dk_gain = out.dk_gain,
                              .write = pass == 0 ? Write::kOverwrite : Write::kAdd,
                              .gain_offset = in.gain_offset},
         threads);
  }
  return out;
}

class HeadNormTest : public ::testing::TestWithParam<Size> {
 protected:
  Inputs in = Make(GetParam());
};

// Columns [begin, begin + d) of every row.
Array<double> Columns(const Array<double>& x, int64_t begin, int64_t d) {
  auto columns = Zeros<double>({x.shape[0], d});
  for (int64_t i = 0; i < x.shape[0] * d; ++i) {
    columns.v[size_t(i)] = x.v[size_t(i / d * x.shape[1] + begin + i % d)];
  }
  return columns;
}

TEST_P(HeadNormTest, EachHeadIsAnRmsNormAndValuesAreCopied) {
  const Size size = GetParam();
  const auto got = Compute<double>(in, size);
  auto dq_gain = Zeros<double>({size.d}), dk_gain = Zeros<double>({size.d});
  for (int64_t h = 0; h < size.a + size.g; ++h) {
    const auto x = Columns(in.x, h * size.d, size.d), dy = Columns(in.dy, h * size.d, size.d);
    const auto& gain = h < size.a ? in.q_gain : in.k_gain;
    auto y = Poison<double>(x.shape), dx = Poison<double>(x.shape), rstd = Poison<double>({size.t});
    Call(RmsNormForwardArgs{.x = x, .gain = gain, .eps = 1e-5, .y = y, .rstd = rstd});
    Call(RmsNormBackwardArgs{.dy = dy,
                             .x = x,
                             .gain = gain,
                             .rstd = rstd,
                             .dx = dx,
                             .dgain = h < size.a ? dq_gain : dk_gain,
                             .write = Write::kAdd});
    ExpectClose(Columns(got.y, h * size.d, size.d).v, y.v, 1e-14);
    ExpectClose(Columns(got.dx, h * size.d, size.d).v, dx.v, 1e-14);
    ExpectClose(Columns(got.rstd, h, 1).v, rstd.v, 1e-14);
  }
  ExpectClose(got.dq_gain.v, dq_gain.v, 1e-13);
  ExpectClose(got.dk_gain.v, dk_gain.v, 1e-13);
  const int64_t values = (size.a + size.g) * size.d, columns = size.g * size.d;
  EXPECT_EQ(Columns(got.y, values, columns).v, Columns(in.x, values, columns).v);
  EXPECT_EQ(Columns(got.dx, values, columns).v, Columns(in.dy, values, columns).v);
}

class HeadNormGradientTest : public HeadNormTest {};

TEST_P(HeadNormGradientTest, BackwardMatchesNumericGradient) {
  const Size size = GetParam();
  const auto loss = [&] {
    auto y = Poison<double>(in.x.shape), rstd = Poison<double>({size.t, size.a + size.g});
    Call(HeadNormForwardArgs{.x = in.x,
                             .q_gain = in.q_gain,
                             .k_gain = in.k_gain,
                             .heads = size.a,
                             .kv_heads = size.g,
                             .eps = 1e-5,
                             .y = y,
                             .rstd = rstd});
    return Dot(y, in.dy);
  };
  const auto got = Compute<double>(in, size);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dq_gain.v, in.q_gain.v, loss, 1e-8);
  ExpectGradient(got.dk_gain.v, in.k_gain.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, Size size) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.q_gain), RoundedTo<T>(exact.k_gain),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size);
  const auto want = Compute<double>(in, size);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  const int64_t terms = size.t * size.a + size.d;
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, size.d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, size.d));
  ExpectClose(Converted<double>(got.dq_gain).v, want.dq_gain.v, Tolerance(accumulate, terms));
  ExpectClose(Converted<double>(got.dk_gain).v, want.dk_gain.v, Tolerance(accumulate, terms));
}

TEST_P(HeadNormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in, GetParam());
  ExpectAgreesWithF64<bf16>(in, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, HeadNormGradientTest,
                         ::testing::Values(Size{1, 1, 1, 2}, Size{3, 4, 2, 8}, Size{66, 1, 1, 3},
                                           Size{2, 2, 2, 33}));

// Wide and narrow heads, many and few: kernels divide each kind otherwise.
INSTANTIATE_TEST_SUITE_P(Sizes, HeadNormTest,
                         ::testing::Values(Size{1, 1, 1, 2}, Size{3, 4, 2, 8}, Size{70, 3, 1, 5},
                                           Size{2, 2, 2, 33}, Size{40, 6, 2, 64}, Size{5, 2, 1, 96},
                                           Size{1300, 5, 1, 128}, Size{2, 1, 1, 512},
                                           Size{2200, 2, 1, 5}, Size{3, 2, 1, 1030}));

// y and dx of heads that are normalised and rotated: by one call, or by two calls each.
template <typename T>
struct Rotated {
  Array<T> y, dx;
  Array<Accumulate<T>> dq_gain, dk_gain;
};

template <typename T>
Rotated<T> Rotate(const Inputs& in, Size size, int64_t sequence, bool at_once) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), dy = Converted<T>(in.dy);
  const auto q_gain = Converted<T>(in.q_gain), k_gain = Converted<T>(in.k_gain);
  auto cos = Zeros<A>({sequence + 1, size.d / 2}), sin = cos;
  for (size_t i = 0; i < cos.v.size(); ++i) {
    cos.v[i] = A(std::cos(0.37 * double(i))), sin.v[i] = A(std::sin(0.37 * double(i)));
  }
  Rotated<T> out{Poison<T>(x.shape), Poison<T>(x.shape), Poison<A>({size.d}), Poison<A>({size.d})};
  auto rstd = Poison<A>({size.t, size.a + size.g});
  const auto rope = [&](const Array<T>& from, Array<T>& to, bool inverse) {
    Call(RopeArgs{.x = from,
                  .cos = cos,
                  .sin = sin,
                  .heads = size.a,
                  .kv_heads = size.g,
                  .head_dim = size.d,
                  .sequence = sequence,
                  .y = to,
                  .inverse = inverse});
  };
  HeadNormForwardArgs forward{.x = x,
                              .q_gain = q_gain,
                              .k_gain = k_gain,
                              .heads = size.a,
                              .kv_heads = size.g,
                              .eps = 1e-5,
                              .y = out.y,
                              .rstd = rstd};
  auto dy_normed = dy;
  HeadNormBackwardArgs backward{.dy = dy_normed,
                                .x = x,
                                .q_gain = q_gain,
                                .k_gain = k_gain,
                                .rstd = rstd,
                                .heads = size.a,
                                .kv_heads = size.g,
                                .dx = out.dx,
                                .dq_gain = out.dq_gain,
                                .dk_gain = out.dk_gain,
                                .write = Write::kOverwrite};
  if (at_once) {
    forward.cos = backward.cos = cos, forward.sin = backward.sin = sin;
    forward.sequence = backward.sequence = sequence;
  }
  Call(forward);
  if (!at_once) rope(out.y, out.y, /*inverse=*/false);
  if (!at_once) rope(dy, dy_normed, /*inverse=*/true);
  Call(backward);
  return out;
}

template <typename T>
void ExpectOneCallDoesBoth(const Inputs& in, Size size, int64_t sequence) {
  SCOPED_TRACE(DTypeOf<T>::value);
  const auto got = Rotate<T>(in, size, sequence, true), want = Rotate<T>(in, size, sequence, false);
  const double tolerance = Tolerance(DTypeOf<T>::value, 1);
  ExpectClose(Converted<double>(got.y).v, Converted<double>(want.y).v, tolerance);
  ExpectClose(Converted<double>(got.dx).v, Converted<double>(want.dx).v, tolerance);
  ExpectClose(Converted<double>(got.dq_gain).v, Converted<double>(want.dq_gain).v, tolerance);
  ExpectClose(Converted<double>(got.dk_gain).v, Converted<double>(want.dk_gain).v, tolerance);
}

// Heads whose pairs a GPU's lanes hold, and others; sequences that end within a block.
TEST(HeadNorm, OneCallNormalisesAndRotates) {
  for (const Size& size : {Size{7, 2, 1, 16}, Size{9, 4, 2, 64}, Size{1300, 5, 1, 128},
                           Size{11, 2, 2, 256}, Size{6, 2, 1, 96}, Size{5, 1, 2, 6}}) {
    for (const int64_t sequence : {int64_t{1}, int64_t{3}, size.t}) {
      if (size.t > 1000 && sequence < size.t) continue;  // The others show these.
      SCOPED_TRACE(size.d);
      const Inputs in = Make(size);
      ExpectOneCallDoesBoth<double>(in, size, sequence);
      ExpectOneCallDoesBoth<float>(in, size, sequence);
      ExpectOneCallDoesBoth<bf16>(in, size, sequence);
    }
  }
}

// As a pass lays out memory.
TEST(HeadNorm, TheGradientMayTakeThePlaceOfTheOutputs) {
  for (const Size& size : {Size{9, 4, 2, 64}, Size{5, 1, 2, 6}}) {
    const Inputs in = Make(size);
    const auto want = Compute<float>(in, size);
    auto dy = Converted<float>(in.dy);
    auto dq_gain = Poison<float>({size.d}), dk_gain = dq_gain;
    Call(HeadNormBackwardArgs{.dy = dy,
                              .x = Converted<float>(in.x),
                              .q_gain = Converted<float>(in.q_gain),
                              .k_gain = Converted<float>(in.k_gain),
                              .rstd = want.rstd,
                              .heads = size.a,
                              .kv_heads = size.g,
                              .dx = dy,
                              .dq_gain = dq_gain,
                              .dk_gain = dk_gain,
                              .write = Write::kOverwrite});
    EXPECT_EQ(dy.v, want.dx.v);
    EXPECT_EQ(dq_gain.v, want.dq_gain.v);
  }
}

TEST(HeadNorm, GainGradientsOfALaterMicroBatchAreAdded) {
  const Size size = {3, 4, 2, 8};
  const Inputs in = Make(size);
  const auto once = Compute<double>(in, size), twice = Compute<double>(in, size, 2);
  for (size_t i = 0; i < once.dq_gain.v.size(); ++i) {
    EXPECT_DOUBLE_EQ(twice.dq_gain.v[i], 2 * once.dq_gain.v[i]);
    EXPECT_DOUBLE_EQ(twice.dk_gain.v[i], 2 * once.dk_gain.v[i]);
  }
}

TEST(HeadNorm, ZeroCentredGainsAreGainsLessOne) {
  const Size size = {3, 4, 2, 8};
  const Inputs plain = Make(size);
  Inputs centred = plain;
  for (double& gain : centred.q_gain.v) gain -= 1;
  for (double& gain : centred.k_gain.v) gain -= 1;
  centred.gain_offset = 1;
  const auto want = Compute<double>(plain, size), got = Compute<double>(centred, size);
  ExpectClose(got.y.v, want.y.v, 1e-14);
  ExpectClose(got.dx.v, want.dx.v, 1e-14);
  ExpectClose(got.dq_gain.v, want.dq_gain.v, 1e-14);
  ExpectClose(got.dk_gain.v, want.dk_gain.v, 1e-14);
}

TEST(HeadNorm, OutputMayBeTheInput) {
  const Size size = {3, 4, 2, 8};
  Inputs in = Make(size);
  const auto want = Compute<double>(in, size).y.v;
  auto rstd = Poison<double>({size.t, size.a + size.g});
  Call(HeadNormForwardArgs{.x = in.x,
                           .q_gain = in.q_gain,
                           .k_gain = in.k_gain,
                           .heads = size.a,
                           .kv_heads = size.g,
                           .eps = 1e-5,
                           .y = in.x,
                           .rstd = rstd});
  EXPECT_EQ(in.x.v, want);
}

TEST(HeadNorm, ThreadsDoNotChangeBits) {
  const Size size = {200, 8, 2, 64};
  const Inputs in = Make(size);
  const auto one = Compute<float>(in, size, 1, 1), three = Compute<float>(in, size, 1, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dq_gain.v, three.dq_gain.v);
  EXPECT_EQ(one.dk_gain.v, three.dk_gain.v);
}

TEST(HeadNormDeathTest, NamesTheArgumentOfWrongShape) {
  const Size size = {3, 4, 2, 8};
  Inputs in = Make(size);
  EXPECT_DEATH(Compute<double>(in, {3, 4, 3, 8}),
               "head_norm x: \\[3, 64\\] for 4 query and 3 key/value heads");
  EXPECT_DEATH(Rotate<double>(in, size, 0, true), "head_norm sequence: 0 with a table of 1");
  const Size odd = {3, 2, 1, 5};
  EXPECT_DEATH(Rotate<double>(Make(odd), odd, 3, true), "a rotation of heads of 5 dims");
  in.k_gain = Zeros<double>({4});
  EXPECT_DEATH(Compute<double>(in, size), "head_norm k_gain: wanted f64 with 8 elements");
}

}  // namespace trainyard::testing::head_norm
