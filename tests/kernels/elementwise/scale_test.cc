// Proves kernels/elementwise/scale.h: each element times the factor, in every dtype, also in place.

#include "kernels/elementwise/scale.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::scale {

template <typename T>
void ExpectProducts(Shape shape) {
  const auto x = RoundedTo<T>(Normal<double>(shape, 1));
  auto want = x;
  for (double& value : want.v) value *= 0.3;
  auto y = Poison<T>(shape), in_place = Converted<T>(x);
  Call(ScaleArgs{.x = Converted<T>(x), .y = y, .factor = 0.3});
  Call(ScaleArgs{.x = in_place, .y = in_place, .factor = 0.3});
  ExpectClose(Converted<double>(y).v, want.v, Tolerance(DTypeOf<T>::value, 1));
  EXPECT_EQ(in_place.v, y.v);
}

TEST(Scale, MultipliesEachElement) {
  for (const Shape shape : {Shape{1}, Shape{3, 7}, Shape{4, 136}}) {
    ExpectProducts<double>(shape);
    ExpectProducts<float>(shape);
    ExpectProducts<bf16>(shape);
  }
}

TEST(ScaleDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3, 10}), y = Zeros<float>({29});
  EXPECT_DEATH(Call(ScaleArgs{.x = x, .y = y, .factor = 1}),
               "scale y: wanted f32 with 30 elements");
}

}  // namespace trainyard::testing::scale
