// Proves kernels/state_space/state_scan.h: the state space against the plain recurrence, token by
// token; the gradients against the recurrence's adjoint and against numeric differentiation in f64;
// the lower precisions against f64.

#include "kernels/state_space/state_scan.h"

#include "tests/kernels/state_space/state_space.h"

namespace trainyard::testing::state_scan {

class StateScanTest : public ::testing::TestWithParam<StateSize> {
 protected:
  StateSize size = GetParam();
  StateInputs in = MakeStateInputs(size);
  Array<double> dy = Normal<double>({size.tokens(), size.dims.inner()}, 7);
};

TEST_P(StateScanTest, IsTheRecurrence) {
  ExpectClose(Scan<double>(in, size).v, PlainScan(in, size).v, 1e-13);
}

TEST_P(StateScanTest, StartsWithZerosWithoutAStart) {
  const auto y = Scan<double>(in, size, /*started=*/false);
  const auto got = ScanBackward<double>(in, dy, size, /*started=*/false);
  in.start = Zeros<double>(in.start.shape);
  const StateInputs want = PlainScanGradients(in, dy, size);
  ExpectClose(y.v, PlainScan(in, size).v, 1e-13);
  ExpectClose(got.xbc.v, want.xbc.v, 1e-12);
  ExpectClose(got.a_log.v, want.a_log.v, 1e-11);
}

TEST_P(StateScanTest, BackwardIsTheAdjointOfTheRecurrence) {
  const auto got = ScanBackward<double>(in, dy, size);
  const StateInputs want = PlainScanGradients(in, dy, size);
  ExpectClose(got.xbc.v, want.xbc.v, 1e-12);
  ExpectClose(got.dt.v, want.dt.v, 1e-11);
  ExpectClose(got.dt_bias.v, want.dt_bias.v, 1e-11);
  ExpectClose(got.a_log.v, want.a_log.v, 1e-11);
  ExpectClose(got.d.v, want.d.v, 1e-12);
  ExpectClose(got.start.v, want.start.v, 1e-12);
  const auto added = ScanBackward<double>(in, dy, size, /*started=*/true, 2, /*before=*/0.25);
  for (int64_t h = 0; h < size.dims.heads; ++h) {
    const size_t i = size_t(h);
    EXPECT_NEAR(added.dt_bias.v[i], got.dt_bias.v[i] + 0.25, 1e-9);
    EXPECT_NEAR(added.a_log.v[i], got.a_log.v[i] + 0.25, 1e-9);
    EXPECT_NEAR(added.d.v[i], got.d.v[i] + 0.25, 1e-9);
  }
}

// A result of T is the rounded result of exact sums, but for the roundings of f32 inside. CUDA
// rounds the operands of products to bf16, too: three roundings on the way of a product.
template <typename T>
void ExpectAgreesWithF64(const StateInputs& exact, const Array<double>& dy64,
                         const StateSize& size) {
  const StateInputs in = RoundedTo<T>(exact);
  const auto dy = RoundedTo<T>(dy64);
  const auto got = ScanBackward<T>(in, dy, size);
  const PlainGradients want = PlainScanGradients(in, dy, size);
  const double tolerance = 3 * Tolerance(DTypeOf<T>::value, size.tokens());
  const auto expect = [&](const char* name, const auto& of, const Array<double>& exactly) {
    SCOPED_TRACE(name);
    ExpectClose(Converted<double>(of).v, exactly.v, tolerance);
  };
  // The gradients of dt_bias and a_log are sums over tokens, and may be much smaller than their
  // terms, whose roundings they have.
  const auto smaller = [](const auto& terms, const auto& sum) {
    const auto sizes = [](const auto& of) {
      double total = 0;
      for (const double x : of.v) total += std::abs(x);
      return total;
    };
    return std::max(1.0, sizes(terms) / sizes(sum));
  };
  expect("y", Scan<T>(in, size), PlainScan(in, size));
  expect("xbc", got.xbc, want.xbc);
  expect("dt", got.dt, want.dt);
  ExpectClose(Converted<double>(got.dt_bias).v, want.dt_bias.v,
              tolerance * smaller(want.dt, want.dt_bias));
  ExpectClose(Converted<double>(got.a_log).v, want.a_log.v,
              tolerance * smaller(want.a_log_terms, want.a_log));
  expect("d", got.d, want.d);
  expect("start", got.start, want.start);
}

TEST_P(StateScanTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in, dy, size);
  ExpectAgreesWithF64<bf16>(in, dy, size);
}

StateDims Dims(int64_t heads, int64_t groups, int64_t head_dim, int64_t state, int64_t sequence) {
  return {
      .heads = heads, .groups = groups, .head_dim = head_dim, .state = state, .sequence = sequence};
}
StateDims Clamped(StateDims dims) {
  dims.min_step = 0.4, dims.max_step = 1.5;
  return dims;
}

// One token; odd widths; clamped steps; parts of several chunks, the last one short or full; the
// widths of real models. Then documents: that begin with the first and the last token of a part,
// one token long, around the borders of chunks, and longer than chunks.
INSTANTIATE_TEST_SUITE_P(
    Sizes, StateScanTest,
    ::testing::Values(StateSize{1, Dims(1, 1, 1, 1, 1)}, StateSize{2, Dims(4, 2, 3, 5, 7)},
                      StateSize{1, Clamped(Dims(2, 1, 4, 3, 9))},
                      StateSize{2, Dims(2, 2, 5, 4, 131)}, StateSize{1, Dims(3, 1, 16, 8, 256)},
                      StateSize{1, Dims(2, 1, 64, 128, 160)},
                      StateSize{2, Dims(4, 2, 3, 5, 7), {2, 3, 7, 13}},
                      StateSize{
                          2, Dims(2, 2, 5, 4, 131), {63, 64, 65, 128, 130, 194, 195, 196, 261}},
                      StateSize{2, Dims(2, 1, 4, 3, 330), {200, 458, 459}},
                      StateSize{1, Dims(3, 1, 16, 8, 140), EveryToken(140)},
                      StateSize{1, Dims(2, 1, 16, 8, 270), {50, 128, 200}}));

class StateScanGradientTest : public ::testing::TestWithParam<StateSize> {};

TEST_P(StateScanGradientTest, BackwardMatchesNumericGradient) {
  const StateSize size = GetParam();
  StateInputs in = MakeStateInputs(size);
  const auto dy = Normal<double>({size.tokens(), size.dims.inner()}, 7);
  const auto loss = [&] { return Dot(Scan<double>(in, size, /*started=*/true, 1), dy); };
  const auto got = ScanBackward<double>(in, dy, size);
  ExpectClose(got.xbc.v, NumericGrad(in.xbc.v, loss), 1e-8);
  ExpectClose(got.dt.v, NumericGrad(in.dt.v, loss), 1e-8);
  ExpectClose(got.dt_bias.v, NumericGrad(in.dt_bias.v, loss), 1e-8);
  ExpectClose(got.a_log.v, NumericGrad(in.a_log.v, loss), 1e-8);
  ExpectClose(got.d.v, NumericGrad(in.d.v, loss), 1e-8);
  ExpectClose(got.start.v, NumericGrad(in.start.v, loss), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Sizes, StateScanGradientTest,
                         ::testing::Values(StateSize{2, Clamped(Dims(2, 1, 2, 3, 4))},
                                           StateSize{2, Clamped(Dims(2, 1, 2, 3, 4)), {1, 6, 7}},
                                           StateSize{1, Dims(2, 1, 2, 2, 67), {20, 64, 65}}));

TEST(StateScan, DocumentsAreAsIfAlone) {
  const StateDims dims = Dims(4, 2, 5, 6, 300);
  const StateSize size = {1, dims, {0, 1, 40, 63, 64, 65, 128, 130, 190, 257, 299}};
  const StateInputs in = MakeStateInputs(size);
  const auto dy = Normal<double>({size.tokens(), dims.inner()}, 7);
  const auto y = Scan<double>(in, size, /*started=*/false);
  const auto got = ScanBackward<double>(in, dy, size, /*started=*/false);
  std::vector<double> dt_bias(4, 0), a_log(4, 0), d(4, 0);
  ForEachDocument(300, size.begins, [&](int64_t first, int64_t count) {
    SCOPED_TRACE(first);
    StateSize alone = {1, dims};
    alone.dims.sequence = count;
    StateInputs of = in;
    of.xbc = RowsOf(in.xbc, first, count), of.dt = RowsOf(in.dt, first, count);
    of.positions = {};
    const auto of_dy = RowsOf(dy, first, count);
    const auto want = ScanBackward<double>(of, of_dy, alone, /*started=*/false);
    ExpectClose(RowsOf(y, first, count).v, Scan<double>(of, alone, /*started=*/false).v, 1e-12);
    ExpectClose(RowsOf(got.xbc, first, count).v, want.xbc.v, 1e-12);
    ExpectClose(RowsOf(got.dt, first, count).v, want.dt.v, 1e-12);
    for (size_t h = 0; h < 4; ++h) {
      dt_bias[h] += want.dt_bias.v[h], a_log[h] += want.a_log.v[h], d[h] += want.d.v[h];
    }
  });
  ExpectClose(got.dt_bias.v, dt_bias, 1e-12);
  ExpectClose(got.a_log.v, a_log, 1e-12);
  ExpectClose(got.d.v, d, 1e-12);
}

// Steps so long that a state is forgotten within a few tokens, and so short that it never is: sums
// of decays must not overflow, and differences of sums must not swallow what is small.
TEST(StateScan, LongAndShortStepsAgreeWithTheRecurrence) {
  const StateSize size = {1, Dims(2, 1, 4, 4, 300)};
  StateInputs in = MakeStateInputs(size);
  in.a_log.v = {5, -9};
  const auto dy = Normal<double>({size.tokens(), size.dims.inner()}, 7);
  ExpectAgreesWithF64<double>(in, dy, size);
  ExpectAgreesWithF64<float>(in, dy, size);
}

TEST(StateScan, ThreadsDoNotChangeBits) {
  const StateSize size = {2, Dims(4, 2, 16, 16, 200)};
  const StateInputs in = MakeStateInputs(size);
  const auto dy = Normal<double>({size.tokens(), size.dims.inner()}, 7);
  EXPECT_EQ(Scan<float>(in, size, true, 1).v, Scan<float>(in, size, true, 3).v);
  const auto one = ScanBackward<float>(in, dy, size, true, 1);
  const auto three = ScanBackward<float>(in, dy, size, true, 3);
  EXPECT_EQ(one.xbc.v, three.xbc.v);
  EXPECT_EQ(one.dt.v, three.dt.v);
  EXPECT_EQ(one.dt_bias.v, three.dt_bias.v);
  EXPECT_EQ(one.a_log.v, three.a_log.v);
  EXPECT_EQ(one.d.v, three.d.v);
  EXPECT_EQ(one.start.v, three.start.v);
}

TEST(StateScanDeathTest, NamesTheArgumentOfWrongShape) {
  const StateSize size = {1, Dims(2, 1, 2, 3, 4)};
  StateInputs in = MakeStateInputs(size);
  in.dt = Normal<double>({4, 3}, 2);
  EXPECT_DEATH(Scan<double>(in, size), "state_scan dt: wanted f64 \\[4, 2\\], got f64 \\[4, 3\\]");
  in = MakeStateInputs(size);
  StateSize wrong = size;
  wrong.dims.groups = 3;
  EXPECT_DEATH(Scan<double>(in, wrong), "state_scan heads: 2 in 3 groups");
  in.positions = Zeros<int32_t>({3});
  EXPECT_DEATH(Scan<double>(in, size), "state_scan document_positions: wanted i32 with 4 elements");
  in = MakeStateInputs(size);
  wrong = size;
  wrong.dims.sequence = 3;
  EXPECT_DEATH(Scan<double>(in, wrong), "state_scan sequence: 3 of 4 tokens");
}

}  // namespace trainyard::testing::state_scan
