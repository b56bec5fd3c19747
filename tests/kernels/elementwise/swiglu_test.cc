// Proves kernels/elementwise/swiglu.h on the CPU: the gradient against numeric differentiation in
// f64, the lower precisions against f64.

#include "kernels/elementwise/swiglu.h"

#include "kernels/elementwise/gelu.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::swiglu {

struct Size {
  int64_t t, f;
  GateActivation gate = GateActivation::kSilu;
};

template <typename T>
struct Outputs {
  Array<T> y, dx;
};

template <typename T>
Outputs<T> Compute(const Array<double>& x64, const Array<double>& dy64,
                   GateActivation gate = GateActivation::kSilu) {
  const auto x = Converted<T>(x64), dy = Converted<T>(dy64);
  Outputs<T> out{Poison<T>(dy.shape), Poison<T>(x.shape)};
  Call(SwiGluForwardArgs{.x = x, .y = out.y, .gate = gate});
  Call(SwiGluBackwardArgs{.dy = dy, .x = x, .dx = out.dx, .gate = gate});
  return out;
}

class SwiGluTest : public ::testing::TestWithParam<Size> {
 protected:
  Array<double> x = Normal<double>({GetParam().t, 2 * GetParam().f}, 1);
  Array<double> dy = Normal<double>({GetParam().t, GetParam().f}, 2);
  GateActivation gate = GetParam().gate;
};

TEST_P(SwiGluTest, BackwardMatchesNumericGradient) {
  const auto loss = [&] { return Dot(Compute<double>(x, dy, gate).y, dy); };
  ExpectGradient(Compute<double>(x, dy, gate).dx.v, x.v, loss, 1e-8);
}

TEST(SwiGlu, GatesByGeluAsGeluDoes) {
  const auto x = Normal<double>({3, 10}, 1);
  const auto y = Compute<double>(x, Normal<double>({3, 5}, 2), GateActivation::kGelu).y;
  Array<double> gate = Zeros<double>({3, 5}), want = gate;
  for (int64_t i = 0; i < 15; ++i) gate.v[i] = x.v[i / 5 * 10 + i % 5];
  Call(GeluForwardArgs{.x = gate, .y = want});
  for (int64_t i = 0; i < 15; ++i) want.v[i] *= x.v[i / 5 * 10 + 5 + i % 5];
  ExpectClose(y.v, want.v, 1e-15);
}

template <typename T>
void ExpectAgreesWithF64(const Array<double>& x, const Array<double>& dy, GateActivation gate) {
  const auto got = Compute<T>(x, dy, gate);
  const auto want = Compute<double>(x, dy, gate);
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(DTypeOf<T>::value, 1));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(DTypeOf<T>::value, 1));
}

TEST_P(SwiGluTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(RoundedTo<float>(x), RoundedTo<float>(dy), gate);
  ExpectAgreesWithF64<bf16>(RoundedTo<bf16>(x), RoundedTo<bf16>(dy), gate);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SwiGluTest,
                         ::testing::Values(Size{1, 1}, Size{3, 5}, Size{7, 64}, Size{65, 33},
                                           Size{3, 5, GateActivation::kGelu},
                                           Size{7, 64, GateActivation::kGelu}));

// More columns than one block of a GPU takes at once, in packs or one by one, and more rows than it
// has blocks.
TEST(SwiGlu, WideAndManyRowsAgreeWithF64) {
  for (const auto& [t, f, gate] :
       {Size{2, 2056}, Size{2, 301}, Size{8500, 1}, Size{2, 301, GateActivation::kGelu}}) {
    const auto x = Normal<double>({t, 2 * f}, 1), dy = Normal<double>({t, f}, 2);
    ExpectAgreesWithF64<float>(RoundedTo<float>(x), RoundedTo<float>(dy), gate);
    ExpectAgreesWithF64<bf16>(RoundedTo<bf16>(x), RoundedTo<bf16>(dy), gate);
  }
}

TEST(SwiGlu, GradientMayReplaceTheInput) {
  auto x = Normal<double>({3, 10}, 1);
  const auto dy = Normal<double>({3, 5}, 2);
  const auto want = Compute<double>(x, dy).dx.v;
  Call(SwiGluBackwardArgs{.dy = dy, .x = x, .dx = x});
  EXPECT_EQ(x.v, want);
}

// exp(-g) overflows for these gates; the result must not become NaN.
TEST(SwiGlu, ExtremeGatesStayFinite) {
  const Array<float> x = {{2, 2}, {-200, 1, 200, 1}}, dy = {{2, 1}, {1, 1}};
  auto y = Poison<float>({2, 1}), dx = Poison<float>({2, 2});
  Call(SwiGluForwardArgs{.x = x, .y = y});
  Call(SwiGluBackwardArgs{.dy = dy, .x = x, .dx = dx});
  EXPECT_EQ(y.v, (std::vector<float>{0, 200}));
  EXPECT_EQ(dx.v, (std::vector<float>{0, 0, 1, 200}));
}

TEST(SwiGluDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({3, 10}), y = Zeros<float>({3, 4}), odd = Zeros<float>({3, 9});
  EXPECT_DEATH(Call(SwiGluForwardArgs{.x = x, .y = y}), "swiglu y: wanted f32 \\[3, 5\\]");
  EXPECT_DEATH(Call(SwiGluForwardArgs{.x = odd, .y = y}), "swiglu x: odd width");
  EXPECT_DEATH(Call(SwiGluBackwardArgs{.dy = y, .x = x, .dx = x}), "swiglu dy");
}

}  // namespace trainyard::testing::swiglu
