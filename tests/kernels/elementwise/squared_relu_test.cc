// Proves kernels/elementwise/squared_relu.h: the formula by hand, the gradient against numeric
// differentiation in f64, the lower precisions against f64.

#include "kernels/elementwise/squared_relu.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::squared_relu {

template <typename T>
struct Outputs {
  Array<T> y, dx;
};

template <typename T>
Outputs<T> Compute(const Array<double>& x64, const Array<double>& dy64) {
  const auto x = Converted<T>(x64), dy = Converted<T>(dy64);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape)};
  Call(SquaredReluForwardArgs{.x = x, .y = out.y});
  Call(SquaredReluBackwardArgs{.dy = dy, .x = x, .dx = out.dx});
  return out;
}

TEST(SquaredRelu, IsZeroBelowZeroAndTheSquareAbove) {
  const Array<float> x = {{4}, {-3, 0, 0.5, 3}}, dy = {{4}, {1, 1, 1, 2}};
  auto y = Poison<float>({4}), dx = y;
  Call(SquaredReluForwardArgs{.x = x, .y = y});
  Call(SquaredReluBackwardArgs{.dy = dy, .x = x, .dx = dx});
  EXPECT_EQ(y.v, (std::vector<float>{0, 0, 0.25, 9}));
  EXPECT_EQ(dx.v, (std::vector<float>{0, 0, 1, 12}));
}

// A step with a value that is no number must be seen, and not go on with a zero.
TEST(SquaredRelu, KeepsWhatIsNoNumber) {
  const Array<float> x = {{1}, {NAN}};
  auto y = Zeros<float>({1});
  Call(SquaredReluForwardArgs{.x = x, .y = y});
  EXPECT_TRUE(std::isnan(y.v[0]));
}

TEST(SquaredRelu, BackwardMatchesNumericGradient) {
  for (const Shape shape : {Shape{1}, Shape{3, 7}, Shape{2, 8}, Shape{2, 3, 17}}) {
    auto x = Normal<double>(shape, 1);
    const auto dy = Normal<double>(shape, 2);
    const auto want = NumericGrad(x.v, [&] { return Dot(Compute<double>(x, dy).y, dy); });
    ExpectClose(Compute<double>(x, dy).dx.v, want, 1e-8);
  }
}

template <typename T>
void ExpectAgreesWithF64(Shape shape) {
  const auto x = RoundedTo<T>(Normal<double>(shape, 1));
  const auto dy = RoundedTo<T>(Normal<double>(shape, 2));
  const auto got = Compute<T>(x, dy);
  const auto want = Compute<double>(x, dy);
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(DTypeOf<T>::value, 1));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(DTypeOf<T>::value, 1));
}

TEST(SquaredRelu, LowerPrecisionsAgreeWithF64) {
  for (const Shape shape : {Shape{5, 131}, Shape{4, 136}}) {
    ExpectAgreesWithF64<float>(shape);
    ExpectAgreesWithF64<bf16>(shape);
  }
}

TEST(SquaredRelu, OutputsMayReplaceInputs) {
  const auto x = Normal<double>({3, 7}, 1), dy = Normal<double>({3, 7}, 2);
  const auto want = Compute<double>(x, dy);
  auto y = x, over_dy = dy, over_x = x;
  Call(SquaredReluForwardArgs{.x = y, .y = y});
  Call(SquaredReluBackwardArgs{.dy = over_dy, .x = x, .dx = over_dy});
  Call(SquaredReluBackwardArgs{.dy = dy, .x = over_x, .dx = over_x});
  EXPECT_EQ(y.v, want.y.v);
  EXPECT_EQ(over_dy.v, want.dx.v);
  EXPECT_EQ(over_x.v, want.dx.v);
}

TEST(SquaredReluDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3, 10}), y = Zeros<float>({29});
  EXPECT_DEATH(Call(SquaredReluForwardArgs{.x = x, .y = y}),
               "squared_relu y: wanted f32 with 30 elements");
  EXPECT_DEATH(Call(SquaredReluBackwardArgs{.dy = y, .x = x, .dx = x}), "squared_relu dy");
}

}  // namespace trainyard::testing::squared_relu
