// Proves kernels/elementwise/silu.h: the gradient against numeric differentiation in f64, the lower
// precisions against f64.

#include "kernels/elementwise/silu.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::silu {

template <typename T>
struct Outputs {
  Array<T> y, dx;
};

template <typename T>
Outputs<T> Compute(const Array<double>& x64, const Array<double>& dy64) {
  const auto x = Converted<T>(x64), dy = Converted<T>(dy64);
  Outputs<T> out{Poison<T>(x.shape), Poison<T>(x.shape)};
  Call(SiluForwardArgs{.x = x, .y = out.y});
  Call(SiluBackwardArgs{.dy = dy, .x = x, .dx = out.dx});
  return out;
}

TEST(Silu, MatchesPublishedValues) {
  const Array<double> x = {{3}, {-1, 0, 1}};
  const auto y = Compute<double>(x, x).y;
  EXPECT_NEAR(y.v[0], -0.268941, 1e-6);
  EXPECT_EQ(y.v[1], 0);
  EXPECT_NEAR(y.v[2], 0.731059, 1e-6);
}

TEST(Silu, BackwardMatchesNumericGradient) {
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

TEST(Silu, LowerPrecisionsAgreeWithF64) {
  for (const Shape shape : {Shape{5, 131}, Shape{4, 136}}) {
    ExpectAgreesWithF64<float>(shape);
    ExpectAgreesWithF64<bf16>(shape);
  }
}

// The sigmoid must saturate where its exponential over- or underflows.
TEST(Silu, ExtremeInputsStayFinite) {
  const Array<double> x = {{2}, {-300, 300}}, dy = {{2}, {1, 1}};
  const auto out = Compute<float>(x, dy);
  EXPECT_EQ(out.y.v, (std::vector<float>{0, 300}));
  EXPECT_EQ(out.dx.v, (std::vector<float>{0, 1}));
}

TEST(Silu, OutputsMayReplaceInputs) {
  const auto x = Normal<double>({3, 7}, 1), dy = Normal<double>({3, 7}, 2);
  const auto want = Compute<double>(x, dy);
  auto y = x, over_dy = dy, over_x = x;
  Call(SiluForwardArgs{.x = y, .y = y});
  Call(SiluBackwardArgs{.dy = over_dy, .x = x, .dx = over_dy});
  Call(SiluBackwardArgs{.dy = dy, .x = over_x, .dx = over_x});
  EXPECT_EQ(y.v, want.y.v);
  EXPECT_EQ(over_dy.v, want.dx.v);
  EXPECT_EQ(over_x.v, want.dx.v);
}

TEST(SiluDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3, 10}), y = Zeros<float>({29});
  EXPECT_DEATH(Call(SiluForwardArgs{.x = x, .y = y}), "silu y: wanted f32 with 30 elements");
  EXPECT_DEATH(Call(SiluBackwardArgs{.dy = y, .x = x, .dx = x}), "silu dy");
}

}  // namespace trainyard::testing::silu
