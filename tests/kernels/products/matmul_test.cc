// Proves kernels/products/matmul.h: every transposition, dtype and write mode against a naive loop
// in f64, for what the backend's MatMul chooses and for the blocked product that the CPU's falls
// back to.

#include "kernels/products/matmul.h"

#include "kernels/cpu/products/blocked_matmul.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::matmul {

enum class Path { kBackend, kBlocked };

void Multiply(Path path, const MatMulArgs& args, int threads = 2) {
  if (path == Path::kBackend) return Call(args, threads);
  Exec exec{.threads = Threads(threads)};
  cpu::BlockedMatMul(exec, args);
}

struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b;
};

template <typename T>
double At(const Array<T>& matrix, bool transposed, int64_t row, int64_t column) {
  const int64_t columns = matrix.shape.back();
  return Accumulate<T>(transposed ? matrix.v[column * columns + row]
                                  : matrix.v[row * columns + column]);
}

template <typename T, typename C>
void ExpectProduct(Path path, const Case& c, bool with_bias) {
  SCOPED_TRACE(::testing::Message()
               << c.m << 'x' << c.n << 'x' << c.k << " trans " << c.trans_a << c.trans_b << ' '
               << DTypeOf<T>::value << " to " << DTypeOf<C>::value);
  const auto a = Normal<T>(c.trans_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1);
  const auto b = Normal<T>(c.trans_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, 2);
  const auto bias = Normal<T>({c.n}, 3);
  auto want = Zeros<double>({c.m, c.n});
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    for (int64_t k = 0; k < c.k; ++k) {
      want.v[i] += At(a, c.trans_a, i / c.n, k) * At(b, c.trans_b, k, i % c.n);
    }
    if (with_bias) want.v[i] += double(Accumulate<T>(bias.v[i % c.n]));
  }
  auto got = Poison<C>({c.m, c.n});
  MatMulArgs args = {.a = a, .b = b, .c = got, .trans_a = c.trans_a, .trans_b = c.trans_b};
  if (with_bias) args.bias = bias;
  Multiply(path, args);
  ExpectClose(Converted<double>(got).v, want.v, Tolerance(DTypeOf<C>::value, c.k));
  if (with_bias) return;

  args.write = Write::kAdd;
  Multiply(path, args);
  for (double& x : want.v) x *= 2;
  ExpectClose(Converted<double>(got).v, want.v, Tolerance(DTypeOf<C>::value, c.k));
}

void ExpectEveryDType(Path path, const Case& c, bool with_bias) {
  ExpectProduct<double, double>(path, c, with_bias);
  ExpectProduct<float, float>(path, c, with_bias);
  ExpectProduct<bf16, bf16>(path, c, with_bias);
  ExpectProduct<bf16, float>(path, c, with_bias);
}

class MatMulTest : public ::testing::TestWithParam<Path> {};

TEST_P(MatMulTest, EveryTranspositionAndDTypeMatchesANaiveLoop) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const auto& [m, n, k] : {std::array{1, 1, 1},
                                    {3, 5, 7},
                                    {64, 48, 32},
                                    {33, 130, 65},
                                    {1, 70, 300},
                                    {200, 17, 1},
                                    {197, 261, 259}}) {
        ExpectEveryDType(GetParam(), {m, n, k, trans_a, trans_b}, false);
      }
    }
  }
}

TEST_P(MatMulTest, BiasIsAddedToEveryRow) {
  for (const bool trans_b : {false, true}) {
    for (const int64_t n : {24, 64, 70}) {
      ExpectEveryDType(GetParam(), {5, n, 24, false, trans_b}, true);
    }
  }
}

// The three products of a linear layer are each other's gradients: with y = x w^T + bias, the input
// and weight gradient as matmul.h writes them equal numeric differentiation.
TEST_P(MatMulTest, ProductsOfALinearLayerMatchNumericGradient) {
  auto x = Normal<double>({2, 3, 5}, 1), w = Normal<double>({7, 5}, 2);
  const auto bias = Normal<double>({7}, 3), dy = Normal<double>({2, 3, 7}, 4);
  auto y = Poison<double>(dy.shape), dx = Poison<double>(x.shape), dw = Poison<double>(w.shape);
  const auto loss = [&] {
    Multiply(GetParam(), {.a = x, .b = w, .c = y, .bias = bias, .trans_b = true});
    return Dot(y, dy);
  };
  const auto want_dx = NumericGrad(x.v, loss), want_dw = NumericGrad(w.v, loss);
  Multiply(GetParam(), {.a = dy, .b = w, .c = dx});
  Multiply(GetParam(), {.a = dy, .b = x, .c = dw, .trans_a = true});
  ExpectClose(dx.v, want_dx, 1e-8);
  ExpectClose(dw.v, want_dw, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Paths, MatMulTest, ::testing::Values(Path::kBackend, Path::kBlocked),
                         [](const auto& info) {
                           return info.param == Path::kBackend ? "Backend" : "Blocked";
                         });

TEST(MatMul, BlockedProductDoesNotDependOnThreads) {
  const auto a = Normal<float>({400, 300}, 1), b = Normal<float>({300, 500}, 2);
  auto one = Poison<float>({400, 500}), three = one;
  Multiply(Path::kBlocked, {.a = a, .b = b, .c = one}, 1);
  Multiply(Path::kBlocked, {.a = a, .b = b, .c = three}, 3);
  EXPECT_EQ(one.v, three.v);
}

TEST(MatMul, RepeatedCallsGiveTheSameBits) {
  const auto a = Normal<bf16>({400, 300}, 1), b = Normal<bf16>({300, 500}, 2);
  auto first = Poison<float>({400, 500}), second = first;
  Exec exec{.threads = Threads(2)};
  Call(exec, MatMulArgs{.a = a, .b = b, .c = first});
  Call(exec, MatMulArgs{.a = a, .b = b, .c = second});
  EXPECT_EQ(first.v, second.v);
}

// The prepared primitive is reused for other matrices of one shape, and for no other case.
TEST(MatMul, OneExecServesChangingShapesAndAddresses) {
  Exec exec{.threads = Threads(2)};
  for (int round = 0; round < 2; ++round) {
    for (const int64_t n : {3, 4}) {
      const auto a = Filled<float>({2, n}, 1), b = Filled<float>({n, 2}, float(round + 1));
      auto c = Filled<float>({2, 2}, 1);
      Call(exec, MatMulArgs{.a = a, .b = b, .c = c, .write = Write::kAdd});
      EXPECT_EQ(c.v, std::vector<float>(4, 1 + float(n * (round + 1))));
      Call(exec, MatMulArgs{.a = a, .b = b, .c = c});
      EXPECT_EQ(c.v, std::vector<float>(4, float(n * (round + 1))));
    }
  }
}

// Of one Exec, which prepared the product for other addresses first: operand `shifted` lies where
// vectors cannot be read.
template <typename T>
void ExpectAnyAddressServes() {
  constexpr int64_t m = 8, n = 16, k = 24;
  const auto a = Normal<T>({m * k + 1}, 1), b = Normal<T>({k * n + 1}, 2);
  const auto bias = Normal<T>({n + 1}, 3);
  Exec exec{.threads = Threads(2)};
  for (int shifted = -1; shifted < 4; ++shifted) {
    const T *a_at = &a.v[shifted == 0], *b_at = &b.v[shifted == 1],
            *bias_at = &bias.v[shifted == 2];
    auto c = Poison<T>({m * n + 1});
    T* c_at = &c.v[shifted == 3];
    constexpr DType dtype = DTypeOf<T>::value;
    Call(exec, MatMulArgs{.a = {a_at, dtype, {m, k}},
                          .b = {b_at, dtype, {k, n}},
                          .c = Tensor{{c_at, dtype, {m, n}}},
                          .bias = {bias_at, dtype, {n}}});
    std::vector<double> want, got;
    for (int64_t i = 0; i < m * n; ++i) {
      want.push_back(Accumulate<T>(bias_at[i % n]));
      for (int64_t j = 0; j < k; ++j) {
        want.back() +=
            double(Accumulate<T>(a_at[i / n * k + j])) * Accumulate<T>(b_at[j * n + i % n]);
      }
      got.push_back(Accumulate<T>(c_at[i]));
    }
    ExpectClose(got, want, Tolerance(dtype, k));
  }
}

TEST(MatMul, OperandsMayLieAnywhere) {
  ExpectAnyAddressServes<double>();
  ExpectAnyAddressServes<float>();
  ExpectAnyAddressServes<bf16>();
}

TEST(MatMulDeathTest, NamesTheArgumentOfWrongShape) {
  auto a = Zeros<float>({2, 3}), b = Zeros<float>({4, 5}), c = Zeros<float>({2, 5});
  auto right = Zeros<float>({3, 5}), bias = Zeros<float>({4});
  EXPECT_DEATH(Call(MatMulArgs{.a = a, .b = b, .c = c}),
               "matmul b: wanted f32 \\[3, 5\\], got f32 \\[4, 5\\]");
  EXPECT_DEATH(Call(MatMulArgs{.a = a, .b = right, .c = a}), "matmul c: wanted f32 \\[2, 5\\]");
  EXPECT_DEATH(Call(MatMulArgs{.a = a, .b = right, .c = c, .bias = bias}), "matmul bias");
  auto doubles = Zeros<double>({2, 5});
  EXPECT_DEATH(Call(MatMulArgs{.a = a, .b = right, .c = doubles}), "matmul c: wanted f32, got f64");
}

}  // namespace trainyard::testing::matmul
