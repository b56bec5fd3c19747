// Proves kernels/norms/adaptive_norm.h: gradients against numeric differentiation in f64, the lower
// precisions against f64, the norm without a condition against layer_norm, and rows that begin and
// end in the middle of samples against the rows of whole samples.

#include "kernels/norms/adaptive_norm.h"

#include "kernels/norms/layer_norm.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::adaptive_norm {

constexpr double kEps = 1e-6;

struct Size {
  int64_t t, samples, d;
  SampleRows rows;
};

struct Inputs {
  Array<double> x, shift, scale, dy;
};

Inputs Make(const Size& size) {
  return {Normal<double>({size.t, size.d}, 1), Normal<double>({size.samples, size.d}, 2),
          Normal<double>({size.samples, size.d}, 4), Normal<double>({size.t, size.d}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx, dshift, dscale;
  Array<Accumulate<T>> mean, rstd;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, const SampleRows& rows, int threads = 2) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), shift = Converted<T>(in.shift);
  const auto scale = Converted<T>(in.scale), dy = Converted<T>(in.dy);
  const Shape statistics = {x.shape[0]};
  Outputs<T> out{Poison<T>(x.shape),     Poison<T>(x.shape),    Poison<T>(scale.shape),
                 Poison<T>(scale.shape), Poison<A>(statistics), Poison<A>(statistics)};
  Call(AdaptiveNormForwardArgs{.x = x,
                               .shift = shift,
                               .scale = scale,
                               .rows = rows,
                               .eps = kEps,
                               .y = out.y,
                               .mean = out.mean,
                               .rstd = out.rstd},
       threads);
  Call(AdaptiveNormBackwardArgs{.dy = dy,
                                .x = x,
                                .scale = scale,
                                .mean = out.mean,
                                .rstd = out.rstd,
                                .rows = rows,
                                .dx = out.dx,
                                .dshift = out.dshift,
                                .dscale = out.dscale},
       threads);
  return out;
}

class AdaptiveNormTest : public ::testing::TestWithParam<Size> {};

TEST_P(AdaptiveNormTest, BackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  const SampleRows rows = GetParam().rows;
  const auto loss = [&] { return Dot(Compute<double>(in, rows).y, in.dy); };
  const auto got = Compute<double>(in, rows);
  ExpectGradient(got.dx.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dshift.v, in.shift.v, loss, 1e-8);
  ExpectGradient(got.dscale.v, in.scale.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Size& size) {
  const Inputs exact = Make(size);
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.shift), RoundedTo<T>(exact.scale),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size.rows);
  const auto want = Compute<double>(in, size.rows);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, size.d));
  ExpectClose(Converted<double>(got.rstd).v, want.rstd.v, Tolerance(accumulate, size.d));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, size.d));
  ExpectClose(Converted<double>(got.dshift).v, want.dshift.v, Tolerance(dtype, size.t));
  ExpectClose(Converted<double>(got.dscale).v, want.dscale.v, Tolerance(dtype, size.t + size.d));
}

TEST_P(AdaptiveNormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(GetParam());
  ExpectAgreesWithF64<bf16>(GetParam());
}

// The rows of the last begin and end in samples, and leave the first and the last sample out.
INSTANTIATE_TEST_SUITE_P(Sizes, AdaptiveNormTest,
                         ::testing::Values(Size{1, 1, 8, {.per_sample = 1}},
                                           Size{6, 2, 24, {.per_sample = 3}},
                                           Size{5, 5, 37, {.per_sample = 1}},
                                           Size{140, 2, 3, {.per_sample = 70}},
                                           Size{9, 5, 16, {.first = 6, .per_sample = 4}}));

// Wide and narrow rows, many and few samples: kernels divide each kind otherwise.
TEST(AdaptiveNorm, LargeSizesAgreeWithF64) {
  for (const Size& size :
       {Size{150, 1, 8, {.per_sample = 150}}, Size{2100, 3, 8, {.per_sample = 700}},
        Size{2, 2, 4096, {.per_sample = 1}}, Size{3, 1, 8192, {.per_sample = 3}},
        Size{2, 1, 20007, {.per_sample = 2}}}) {
    SCOPED_TRACE(size.d);
    ExpectAgreesWithF64<float>(size);
    ExpectAgreesWithF64<bf16>(size);
  }
}

TEST(AdaptiveNorm, WithoutAConditionIsLayerNorm) {
  Inputs in = Make({6, 2, 24, {.per_sample = 3}});
  in.shift = in.scale = Zeros<double>({2, 24});
  auto y = Zeros<double>({6, 24}), mean = Zeros<double>({6}), rstd = mean;
  auto gain = Zeros<double>({24});
  const auto bias = gain;
  for (double& g : gain.v) g = 1;
  Call(LayerNormForwardArgs{
      .x = in.x, .gain = gain, .bias = bias, .eps = kEps, .y = y, .mean = mean, .rstd = rstd});
  const auto got = Compute<double>(in, {.per_sample = 3});
  ExpectClose(got.y.v, y.v, 1e-15);
  ExpectClose(got.mean.v, mean.v, 1e-15);
  ExpectClose(got.rstd.v, rstd.v, 1e-15);
}

// Two ranks share out five samples of four rows, nine and eleven rows each. The gradients of what
// their condition says add up to those of all rows.
TEST(AdaptiveNorm, RowsOfTwoRanksAreThoseOfAll) {
  const Inputs all = Make({20, 5, 16, {.per_sample = 4}});
  const auto want = Compute<double>(all, {.per_sample = 4});
  auto dshift = Zeros<double>({5, 16}), dscale = dshift;
  for (const auto& [begin, end] : {std::pair(0, 9), std::pair(9, 20)}) {
    const auto part = [begin = begin, end = end](const Array<double>& whole) {
      return Array<double>{{end - begin, 16},
                           {whole.v.begin() + begin * 16, whole.v.begin() + end * 16}};
    };
    const Inputs mine = {part(all.x), all.shift, all.scale, part(all.dy)};
    const auto got = Compute<double>(mine, {.first = begin, .per_sample = 4});
    EXPECT_EQ(got.y.v, part(want.y).v);
    EXPECT_EQ(got.dx.v, part(want.dx).v);
    for (size_t i = 0; i < dshift.v.size(); ++i) {
      dshift.v[i] += got.dshift.v[i];
      dscale.v[i] += got.dscale.v[i];
    }
  }
  ExpectClose(dshift.v, want.dshift.v, 1e-14);
  ExpectClose(dscale.v, want.dscale.v, 1e-14);
}

TEST(AdaptiveNorm, ThreadsDoNotChangeBits) {
  const Size size{400, 2, 300, {.per_sample = 200}};
  const auto one = Compute<float>(Make(size), size.rows, 1);
  const auto three = Compute<float>(Make(size), size.rows, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dscale.v, three.dscale.v);
}

TEST(AdaptiveNorm, OutputMayReplaceTheInput) {
  const Size size{6, 2, 24, {.per_sample = 3}};
  const Inputs in = Make(size);
  auto x = in.x, mean = Zeros<double>({6}), rstd = mean;
  Call(AdaptiveNormForwardArgs{.x = x,
                               .shift = in.shift,
                               .scale = in.scale,
                               .rows = size.rows,
                               .eps = kEps,
                               .y = x,
                               .mean = mean,
                               .rstd = rstd});
  EXPECT_EQ(x.v, Compute<double>(in, size.rows).y.v);
}

TEST(AdaptiveNormDeathTest, NamesTheArgumentOfWrongShape) {
  const Inputs in = Make({6, 2, 8, {.per_sample = 3}});
  EXPECT_DEATH(Compute<double>(in, {.per_sample = 2}), "adaptive_norm shift: 2 samples of 2 rows");
  EXPECT_DEATH(Compute<double>(in, {.first = 1, .per_sample = 3}), "for rows 1 to 7");
  Inputs other = in;
  other.scale = Zeros<double>({3, 8});
  EXPECT_DEATH(Compute<double>(other, {.per_sample = 3}), "adaptive_norm scale: wanted f64 .2, 8.");
}

}  // namespace trainyard::testing::adaptive_norm
