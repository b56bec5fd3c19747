// Proves kernels/products/matmul_gelu.h: the value against the product and GELU of it, the gradient
// against numeric differentiation in f64, the lower precisions against f64, with outputs wanted and
// not.

#include "kernels/products/matmul_gelu.h"

#include "kernels/elementwise/gelu.h"
#include "kernels/products/matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::matmul_gelu {

struct Case {
  int64_t t, k, n;
};
// Widths that a vector divides, and such that none does. The emulation of cuBLASLt has no algorithm
// for an epilogue of widths that 5 divides, and refuses its first one for those that 3 divides.
const Case kCases[] = {{1, 9, 11},   {3, 5, 7},   {6, 24, 16}, {33, 64, 40},
                       {17, 12, 70}, {5, 12, 48}, {7, 9, 16},  {9, 40, 24}};

template <typename T>
struct Forward {
  Array<T> y, product;
};

// gelu(x w^T + bias), x [T, K], w [N, K], bias [N].
template <typename T>
Forward<T> ComputeForward(const Array<T>& x, const Array<T>& w, const Array<T>& bias) {
  const Shape shape = {x.shape.rows(), w.shape[0]};
  Forward<T> out{Poison<T>(shape), Poison<T>(shape)};
  Call(MatMulGeluForwardArgs{.x = x, .w = w, .bias = bias, .product = out.product, .y = out.y});
  return out;
}

// Inputs of a size that GELU is not a straight line for.
template <typename T>
struct Inputs {
  Array<T> x, w, bias;
  explicit Inputs(const Case& c)
      : x(Normal<T>({c.t, c.k}, 1)), w(Normal<T>({c.n, c.k}, 2)), bias(Normal<T>({c.n}, 3)) {
    for (T& value : w.v) value = T(Accumulate<T>(value) / Accumulate<T>(std::sqrt(c.k)));
  }
};

template <typename To, typename From>
Inputs<To> ConvertedInputs(const Case& c, const Inputs<From>& from) {
  Inputs<To> to(c);
  to.x = Converted<To>(from.x), to.w = Converted<To>(from.w), to.bias = Converted<To>(from.bias);
  return to;
}

TEST(MatMulGelu, IsTheProductAndGeluOfIt) {
  for (const Case& c : kCases) {
    const Inputs<double> in(c);
    auto product = Poison<double>({c.t, c.n}), y = product;
    Call(MatMulArgs{.a = in.x, .b = in.w, .c = product, .bias = in.bias, .trans_b = true});
    Call(GeluForwardArgs{.x = product, .y = y});
    const auto got = ComputeForward(in.x, in.w, in.bias);
    ExpectClose(got.product.v, product.v, 1e-14);
    ExpectClose(got.y.v, y.v, 1e-14);
  }
}

template <typename T>
void ExpectForwardAgreesWithF64(const Case& c) {
  const Inputs<T> in(c);
  const auto wide = ConvertedInputs<double>(c, in);
  const auto want = ComputeForward(wide.x, wide.w, wide.bias);
  const auto got = ComputeForward(in.x, in.w, in.bias);
  constexpr DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(got.product).v, want.product.v, Tolerance(dtype, c.k));
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, c.k));
}

// dx of y = gelu(x), z = y w^T.
template <typename T>
Array<T> ComputeBackward(const Array<T>& dz, const Array<T>& w, const Array<T>& x) {
  auto dx = Poison<T>(x.shape);
  Call(MatMulGeluBackwardArgs{.dy = dz, .w = w, .x = x, .dx = dx});
  return dx;
}

template <typename T>
void ExpectBackwardAgreesWithF64(const Case& c) {
  const Inputs<T> in(c);
  const auto wide = ConvertedInputs<double>(c, in);
  const auto dz = Normal<T>({c.t, c.n}, 4);
  const auto want = ComputeBackward(Converted<double>(dz), wide.w, wide.x);
  const auto got = ComputeBackward(dz, in.w, in.x);
  ExpectClose(Converted<double>(got).v, want.v, Tolerance(DTypeOf<T>::value, c.n));
}

TEST(MatMulGelu, LowerPrecisionsAgreeWithF64) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.t << 'x' << c.k << 'x' << c.n);
    ExpectForwardAgreesWithF64<float>(c);
    ExpectForwardAgreesWithF64<bf16>(c);
    ExpectBackwardAgreesWithF64<float>(c);
    ExpectBackwardAgreesWithF64<bf16>(c);
  }
}

TEST(MatMulGelu, BackwardMatchesNumericGradient) {
  for (const Case& c : kCases) {
    Inputs<double> in(c);
    const auto dz = Normal<double>({c.t, c.n}, 4);
    auto y = Poison<double>({c.t, c.k}), z = Poison<double>({c.t, c.n});
    const auto want = NumericGrad(in.x.v, [&] {
      Call(GeluForwardArgs{.x = in.x, .y = y});
      Call(MatMulArgs{.a = y, .b = in.w, .c = z, .trans_b = true});
      return Dot(z, dz);
    });
    ExpectClose(ComputeBackward(dz, in.w, in.x).v, want, 1e-8);
  }
}

template <typename T>
void ExpectNoBiasIsZero() {
  const Case c = {33, 64, 40};
  const Inputs<T> in(c);
  const auto want = ComputeForward(in.x, in.w, Zeros<T>({c.n}));
  auto y = Poison<T>({c.t, c.n}), product = y;
  Call(MatMulGeluForwardArgs{.x = in.x, .w = in.w, .product = product, .y = y});
  const double tolerance = Tolerance(DTypeOf<T>::value, c.k);
  ExpectClose(Converted<double>(product).v, Converted<double>(want.product).v, tolerance);
  ExpectClose(Converted<double>(y).v, Converted<double>(want.y).v, tolerance);
}
TEST(MatMulGelu, BiasMayBeAbsent) {
  ExpectNoBiasIsZero<double>();
  ExpectNoBiasIsZero<float>();
  ExpectNoBiasIsZero<bf16>();
}

// Elements of `data` from `shift`.
template <typename T>
ConstTensor From(const Array<T>& data, int shift, const Shape& shape) {
  return {&data.v[size_t(shift)], DTypeOf<T>::value, shape};
}
// Of one Exec, which prepared the product for other addresses first.
TEST(MatMulGelu, OperandsMayLieAnywhere) {
  constexpr int64_t t = 8, n = 16, k = 24, kMost = 8;
  const auto x = Normal<bf16>({t * k + kMost}, 1), w = Normal<bf16>({n * k + kMost}, 2);
  const auto bias = Normal<bf16>({n + kMost}, 3);
  Exec exec = TestedBackend().NewExec(Threads(2));
  constexpr int kApart = 256;  // Elements, so that those not shifted are aligned alike.
  auto outputs = Poison<bf16>({24 * kApart});
  for (int round = 0; round < 12; ++round) {  // Nothing is shifted in two, then each by 1 and by 8.
    const auto shift = [&](int operand) {
      return round / 2 == operand + 1 ? round % 2 ? 1 : 8 : 0;
    };
    bf16* const y = &outputs.v[size_t(2 * round * kApart + shift(3))];
    bf16* const product = &outputs.v[size_t((2 * round + 1) * kApart + shift(4))];
    const ConstTensor x_at = From(x, shift(0), {t, k}), w_at = From(w, shift(1), {n, k}),
                      bias_at = From(bias, shift(2), {n});
    const Tensor y_at{{y, DType::kBF16, {t, n}}}, product_at{{product, DType::kBF16, {t, n}}};
    Call(exec, MatMulGeluForwardArgs{
                   .x = x_at, .w = w_at, .bias = bias_at, .product = product_at, .y = y_at});
    auto want = Poison<float>({t, n}), want_y = want;
    Call(exec, MatMulArgs{.a = x_at, .b = w_at, .c = want, .bias = bias_at, .trans_b = true});
    Call(exec, GeluForwardArgs{.x = want, .y = want_y});
    std::vector<double> got, got_y;
    for (int64_t i = 0; i < t * n; ++i) {
      got.push_back(Accumulate<bf16>(product[i]));
      got_y.push_back(Accumulate<bf16>(y[i]));
    }
    ExpectClose(got, Converted<double>(want).v, Tolerance(DType::kBF16, k));
    ExpectClose(got_y, Converted<double>(want_y).v, Tolerance(DType::kBF16, k));
  }
}

TEST(MatMulGeluDeathTest, NamesTheArgumentOfWrongShape) {
  auto x = Zeros<float>({2, 3}), w = Zeros<float>({5, 3}), y = Zeros<float>({2, 5});
  EXPECT_DEATH(Call(MatMulGeluForwardArgs{.x = y, .w = w, .product = y, .y = y}),
               "matmul_gelu w: wanted f32");
  EXPECT_DEATH(Call(MatMulGeluForwardArgs{.x = x, .w = w, .product = y, .y = x}),
               "matmul_gelu y: wanted f32");
  EXPECT_DEATH(Call(MatMulGeluForwardArgs{.x = x, .w = w, .bias = x, .product = y, .y = y}),
               "matmul_gelu bias");
  EXPECT_DEATH(Call(MatMulGeluForwardArgs{.x = x, .w = w, .product = x, .y = y}),
               "matmul_gelu product");
  EXPECT_DEATH(Call(MatMulGeluBackwardArgs{.dy = y, .w = w, .x = y, .dx = x}), "matmul_gelu x");
  EXPECT_DEATH(Call(MatMulGeluBackwardArgs{.dy = y, .w = w, .x = x, .dx = y}), "matmul_gelu dx");
}

}  // namespace trainyard::testing::matmul_gelu
