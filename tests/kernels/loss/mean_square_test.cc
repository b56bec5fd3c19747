// Proves kernels/loss/mean_square.h: the loss against its formula, the gradient against numeric
// differentiation in f64, the lower precisions against f64.

#include "kernels/loss/mean_square.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::mean_square {

constexpr double kScale = 0.25;  // StepState.loss_scale

template <typename T>
struct Outputs {
  double loss;
  Array<T> dx;
};

template <typename T>
Outputs<T> Compute(const Array<double>& x64, const Array<double>& target64, bool gradient = true,
                   int threads = 2) {
  const auto x = Converted<T>(x64), target = Converted<T>(target64);
  StepState state{.loss_scale = kScale, .loss = 1};
  Outputs<T> out{0, gradient ? Poison<T>(x.shape) : Array<T>{}};
  MeanSquareArgs args{.x = x, .target = target, .state = &state};
  if (gradient) args.dx = out.dx;
  Call(args, threads);
  out.loss = state.loss - 1;  // Is added to.
  return out;
}

TEST(MeanSquare, OfRowsIsTheMeanOfTheirElements) {
  const Array<double> x = {{2, 2}, {1, 2, 3, 4}}, target = {{2, 2}, {0, 0, 3, 2}};
  EXPECT_DOUBLE_EQ(Compute<double>(x, target).loss, kScale / 2 * (1 + 4 + 4));
  EXPECT_EQ(Compute<double>(x, target).dx.v, (std::vector<double>{0.25, 0.5, 0, 0.5}));
}

TEST(MeanSquare, GradientMatchesNumericGradient) {
  for (const Shape shape : {Shape{1, 1}, Shape{3, 7}, Shape{4, 8}}) {
    auto x = Normal<double>(shape, 1);
    const auto target = Normal<double>(shape, 2);
    const auto want = NumericGrad(x.v, [&] { return Compute<double>(x, target).loss; });
    ExpectClose(Compute<double>(x, target).dx.v, want, 1e-8);
  }
}

template <typename T>
void ExpectAgreesWithF64(const Shape& shape) {
  const auto x = RoundedTo<T>(Normal<double>(shape, 1));
  const auto target = RoundedTo<T>(Normal<double>(shape, 2));
  const auto got = Compute<T>(x, target);
  const auto want = Compute<double>(x, target);
  EXPECT_NEAR(got.loss, want.loss, want.loss * Tolerance(DType::kF32, 1));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(DTypeOf<T>::value, 1));
}

TEST(MeanSquare, LowerPrecisionsAgreeWithF64) {
  for (const Shape shape : {Shape{5, 131}, Shape{300, 16}, Shape{20000, 16}}) {
    ExpectAgreesWithF64<float>(shape);
    ExpectAgreesWithF64<bf16>(shape);
  }
}

TEST(MeanSquare, WithoutAGradientIsTheSameLoss) {
  const auto x = Normal<double>({40, 16}, 1), target = Normal<double>({40, 16}, 2);
  EXPECT_EQ(Compute<float>(x, target).loss, Compute<float>(x, target, /*gradient=*/false).loss);
}

TEST(MeanSquare, GradientMayReplaceTheInput) {
  auto x = Normal<double>({3, 8}, 1);
  const auto target = Normal<double>({3, 8}, 2);
  const auto want = Compute<double>(x, target);
  StepState state{.loss_scale = kScale};
  Call(MeanSquareArgs{.x = x, .target = target, .state = &state, .dx = x});
  EXPECT_EQ(x.v, want.dx.v);
}

TEST(MeanSquare, ThreadsDoNotChangeBits) {
  const auto x = Normal<double>({3000, 16}, 1), target = Normal<double>({3000, 16}, 2);
  EXPECT_EQ(Compute<float>(x, target, true, 1).loss, Compute<float>(x, target, true, 3).loss);
}

TEST(MeanSquareDeathTest, NamesTheArgumentOfWrongShape) {
  const auto x = Zeros<float>({3, 4}), target = Zeros<float>({4, 3});
  StepState state;
  EXPECT_DEATH(Call(MeanSquareArgs{.x = x, .target = target, .state = &state}),
               "mean_square target: wanted f32 .3, 4.");
  EXPECT_DEATH(Call(MeanSquareArgs{.x = x, .target = x, .state = nullptr}), "mean_square state");
}

}  // namespace trainyard::testing::mean_square
