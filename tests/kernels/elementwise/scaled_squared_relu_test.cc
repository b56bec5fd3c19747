// Proves kernels/elementwise/scaled_squared_relu.h on the CPU: the gradients against numeric
// differentiation in f64, the lower precisions against f64, and that rows beyond the count are left
// alone.

#include "kernels/elementwise/scaled_squared_relu.h"

#include <cmath>

#include "kernels/elementwise/squared_relu.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::scaled_squared_relu {

struct Size {
  int64_t r, f;
  int32_t count;
};

struct Inputs {
  Array<double> x, w, dy;
};

Inputs Make(Size size) {
  return {Normal<double>({size.r, size.f}, 1), Normal<double>({size.r}, 2),
          Normal<double>({size.r, size.f}, 3)};
}

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> dw;
};

// Outputs begin as zero.
template <typename T>
Outputs<T> Compute(const Inputs& in, int32_t rows, int threads = 2) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), dy = Converted<T>(in.dy);
  const auto w = Converted<A>(in.w);
  const Array<int32_t> count = {{1}, {rows}};
  Outputs<T> out{Zeros<T>(dy.shape), Zeros<T>(x.shape), Zeros<A>(w.shape)};
  Call(ScaledSquaredReluForwardArgs{.x = x, .w = w, .count = count, .y = out.y}, threads);
  Call(
      ScaledSquaredReluBackwardArgs{
          .dy = dy, .x = x, .w = w, .count = count, .dx = out.dx, .dw = out.dw},
      threads);
  return out;
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, const Size& size) {
  const Inputs in = {RoundedTo<T>(exact.x), RoundedTo<float>(exact.w), RoundedTo<T>(exact.dy)};
  const auto got = Compute<T>(in, size.count);
  const auto want = Compute<double>(in, size.count);
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dw).v, want.dw.v, Tolerance(DType::kF32, size.f));
}

class ScaledSquaredReluTest : public ::testing::TestWithParam<Size> {
 protected:
  Inputs in = Make(GetParam());
};

TEST_P(ScaledSquaredReluTest, BackwardMatchesNumericGradient) {
  const int32_t count = GetParam().count;
  const auto loss = [&] { return Dot(Compute<double>(in, count).y, in.dy); };
  const auto want_dx = NumericGrad(in.x.v, loss), want_dw = NumericGrad(in.w.v, loss);
  const auto got = Compute<double>(in, count);
  ExpectClose(got.dx.v, want_dx, 1e-8);
  ExpectClose(got.dw.v, want_dw, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ScaledSquaredReluTest,
                         ::testing::Values(Size{1, 1, 1}, Size{3, 5, 2}, Size{7, 64, 7},
                                           Size{65, 9, 40}));

// Widths and numbers of rows beyond a block and a grid of a GPU, too.
TEST(ScaledSquaredRelu, WithFactorsOfOneIsSquaredRelu) {
  for (const Size size : {Size{9, 21, 9}, Size{3, 2056, 3}, Size{2, 301, 2}, Size{8500, 1, 8500}}) {
    Inputs in = Make(size);
    in.w = Filled<double>({size.r}, 1);
    auto y = Poison<double>(in.dy.shape), dx = Poison<double>(in.x.shape);
    Call(SquaredReluForwardArgs{.x = in.x, .y = y});
    Call(SquaredReluBackwardArgs{.dy = in.dy, .x = in.x, .dx = dx});
    const auto got = Compute<double>(in, size.count);
    ExpectClose(got.y.v, y.v, Tolerance(DType::kF64, 1));
    ExpectClose(got.dx.v, dx.v, Tolerance(DType::kF64, 1));
    ExpectAgreesWithF64<float>(Make(size), size);
    ExpectAgreesWithF64<bf16>(Make(size), size);
  }
}

// Beyond the count the inputs may be anything, and outputs are what they were.
TEST(ScaledSquaredRelu, RowsThatDoNotCountAreLeftAlone) {
  const Array<float> x = {{2, 1}, {2, NAN}}, w = {{2}, {3, NAN}}, dy = {{2, 1}, {5, NAN}};
  const Array<int32_t> count = {{1}, {1}};
  auto y = Filled<float>({2, 1}, 7), dx = Filled<float>({2, 1}, 7), dw = Filled<float>({2}, 7);
  Call(ScaledSquaredReluForwardArgs{.x = x, .w = w, .count = count, .y = y});
  Call(ScaledSquaredReluBackwardArgs{.dy = dy, .x = x, .w = w, .count = count, .dx = dx, .dw = dw});
  EXPECT_EQ(y.v, (std::vector<float>{12, 7}));
  EXPECT_EQ(dx.v, (std::vector<float>{60, 7}));
  EXPECT_EQ(dw.v, (std::vector<float>{20, 7}));
}

TEST(ScaledSquaredRelu, GradientsMayReplaceTheInputs) {
  Inputs in = Make({3, 5, 3});
  const auto want = Compute<double>(in, 3);
  const Array<int32_t> count = {{1}, {3}};
  Call(ScaledSquaredReluBackwardArgs{
      .dy = in.dy, .x = in.x, .w = in.w, .count = count, .dx = in.x, .dw = in.w});
  EXPECT_EQ(in.x.v, want.dx.v);
  EXPECT_EQ(in.w.v, want.dw.v);
}

TEST(ScaledSquaredRelu, ThreadsDoNotChangeBits) {
  const Inputs in = Make({200, 300, 150});
  const auto one = Compute<float>(in, 150, 1), three = Compute<float>(in, 150, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dx.v, three.dx.v);
  EXPECT_EQ(one.dw.v, three.dw.v);
}

TEST(ScaledSquaredReluDeathTest, NamesTheArgumentThatDoesNotFit) {
  Inputs in = Make({3, 5, 3});
  EXPECT_DEATH(Compute<double>(in, 4), "scaled_squared_relu count: 4 of 3");
  EXPECT_DEATH(Compute<double>(in, -1), "scaled_squared_relu count: -1 of 3");
  in.w = Zeros<double>({2});
  EXPECT_DEATH(Compute<double>(in, 3), "scaled_squared_relu w: wanted f64 with 3 elements");
}

}  // namespace trainyard::testing::scaled_squared_relu
