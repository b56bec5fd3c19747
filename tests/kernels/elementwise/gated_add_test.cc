// Proves kernels/elementwise/gated_add.h: gradients against numeric differentiation in f64, the
// lower precisions against f64, and rows that begin and end in the middle of samples.

#include "kernels/elementwise/gated_add.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::gated_add {

struct Size {
  int64_t t, samples, d;
  SampleRows rows;
};

struct Inputs {
  Array<double> x, gate, h, dy;
};

Inputs Make(const Size& size) {
  return {Normal<double>({size.t, size.d}, 1), Normal<double>({size.samples, size.d}, 2),
          Normal<double>({size.t, size.d}, 4), Normal<double>({size.t, size.d}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dh, dgate;
};

template <typename T>
Outputs<T> Compute(const Inputs& in, const SampleRows& rows, int threads = 2) {
  const auto x = Converted<T>(in.x), gate = Converted<T>(in.gate), h = Converted<T>(in.h);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape), Poison<T>(gate.shape)};
  Call(GatedAddForwardArgs{.x = x, .gate = gate, .h = h, .rows = rows, .y = out.y}, threads);
  Call(GatedAddBackwardArgs{.dy = Converted<T>(in.dy),
                            .gate = gate,
                            .h = h,
                            .rows = rows,
                            .dh = out.dh,
                            .dgate = out.dgate},
       threads);
  return out;
}

class GatedAddTest : public ::testing::TestWithParam<Size> {};

TEST_P(GatedAddTest, BackwardMatchesNumericGradient) {
  Inputs in = Make(GetParam());
  const SampleRows rows = GetParam().rows;
  const auto loss = [&] { return Dot(Compute<double>(in, rows).y, in.dy); };
  const auto got = Compute<double>(in, rows);
  ExpectGradient(in.dy.v, in.x.v, loss, 1e-8);
  ExpectGradient(got.dh.v, in.h.v, loss, 1e-8);
  ExpectGradient(got.dgate.v, in.gate.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Size& size) {
  const Inputs exact = Make(size);
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<T>(exact.gate), RoundedTo<T>(exact.h),
                     RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size.rows);
  const auto want = Compute<double>(in, size.rows);
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dh).v, want.dh.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dgate).v, want.dgate.v, Tolerance(dtype, size.t));
}

TEST_P(GatedAddTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(GetParam());
  ExpectAgreesWithF64<bf16>(GetParam());
}

// The rows of the last begin and end in samples, and leave the first and the last sample out.
INSTANTIATE_TEST_SUITE_P(Sizes, GatedAddTest,
                         ::testing::Values(Size{1, 1, 8, {.per_sample = 1}},
                                           Size{6, 2, 24, {.per_sample = 3}},
                                           Size{5, 5, 37, {.per_sample = 1}},
                                           Size{140, 2, 3, {.per_sample = 70}},
                                           Size{9, 5, 16, {.first = 6, .per_sample = 4}}));

// Wide and narrow rows, many and few samples: kernels divide each kind otherwise.
TEST(GatedAdd, LargeSizesAgreeWithF64) {
  for (const Size& size :
       {Size{2100, 3, 8, {.per_sample = 700}}, Size{2, 2, 4096, {.per_sample = 1}},
        Size{3, 1, 8192, {.per_sample = 3}}, Size{2, 1, 20007, {.per_sample = 2}}}) {
    SCOPED_TRACE(size.d);
    ExpectAgreesWithF64<float>(size);
    ExpectAgreesWithF64<bf16>(size);
  }
}

// A rank of several that share out the rows.
TEST(GatedAdd, ASampleWithoutRowsHasAGradientOfZero) {
  const Size size{9, 5, 16, {.first = 6, .per_sample = 4}};
  const auto got = Compute<double>(Make(size), size.rows);
  for (const size_t sample : {size_t{0}, size_t{4}}) {
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(got.dgate.v[sample * 16 + i], 0);
  }
}

TEST(GatedAdd, OutputsMayReplaceInputs) {
  const Size size{6, 2, 24, {.per_sample = 3}};
  const Inputs in = Make(size);
  const auto want = Compute<double>(in, size.rows);
  auto over_x = in.x, over_h = in.h, dh = in.h, dgate = Zeros<double>({2, 24});
  Call(
      GatedAddForwardArgs{.x = over_x, .gate = in.gate, .h = in.h, .rows = size.rows, .y = over_x});
  Call(
      GatedAddForwardArgs{.x = in.x, .gate = in.gate, .h = over_h, .rows = size.rows, .y = over_h});
  Call(GatedAddBackwardArgs{
      .dy = in.dy, .gate = in.gate, .h = dh, .rows = size.rows, .dh = dh, .dgate = dgate});
  EXPECT_EQ(over_x.v, want.y.v);
  EXPECT_EQ(over_h.v, want.y.v);
  EXPECT_EQ(dh.v, want.dh.v);
  EXPECT_EQ(dgate.v, want.dgate.v);
}

TEST(GatedAdd, ThreadsDoNotChangeBits) {
  const Size size{400, 2, 300, {.per_sample = 200}};
  const auto one = Compute<float>(Make(size), size.rows, 1);
  const auto three = Compute<float>(Make(size), size.rows, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dgate.v, three.dgate.v);
}

TEST(GatedAddDeathTest, NamesTheArgumentOfWrongShape) {
  const Inputs in = Make({6, 2, 8, {.per_sample = 3}});
  EXPECT_DEATH(Compute<double>(in, {.per_sample = 2}), "gated_add gate: 2 samples of 2 rows");
  Inputs other = in;
  other.h = Zeros<double>({5, 8});
  EXPECT_DEATH(Compute<double>(other, {.per_sample = 3}), "gated_add h: wanted f64 .6, 8.");
}

}  // namespace trainyard::testing::gated_add
