// Proves that CPUs multiply by a weight in bf16, and look rows up in such a table, as if its
// numbers were wide: against a loop in f64, for every number of rows and columns that fills
// registers or does not. No bit of a row depends on the rows beside it, nor on threads.

#include "kernels/embeddings/embedding.h"
#include "kernels/products/matmul_gelu.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

struct Case {
  int64_t m, n, k;
};

void ExpectProduct(const Case& c, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << c.m << 'x' << c.n << 'x' << c.k << " bias " << with_bias);
  const auto x = Normal<float>({c.m, c.k}, 1), bias = Normal<float>({c.n}, 3);
  const auto w = Normal<bf16>({c.n, c.k}, 2);
  auto want = Zeros<double>({c.m, c.n});
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    const int64_t row = i / c.n, column = i % c.n;
    for (int64_t k = 0; k < c.k; ++k) {
      want.v[i] += double(x.v[row * c.k + k]) * double(float(w.v[column * c.k + k]));
    }
    if (with_bias) want.v[i] += double(bias.v[column]);
  }
  auto got = Poison<float>({c.m, c.n});
  MatMulArgs args = {.a = x, .b = w, .c = got, .trans_b = true};
  if (with_bias) args.bias = bias;
  Call(args, 3);
  const double tolerance = Tolerance(DType::kF32, c.k);
  ExpectClose(Converted<double>(got).v, want.v, tolerance);

  for (int64_t row = 0; row < c.m; ++row) {  // Alone, by one thread.
    auto alone = Poison<float>({1, c.n});
    Array<float> of_row = {{1, c.k}, {x.v.begin() + row * c.k, x.v.begin() + (row + 1) * c.k}};
    MatMulArgs one = args;
    one.a = of_row, one.c = alone;
    Call(one, 1);
    for (int64_t i = 0; i < c.n; ++i) ASSERT_EQ(alone.v[i], got.v[row * c.n + i]) << row;
  }
  if (with_bias) return;
  args.write = Write::kAdd;
  Call(args);
  for (double& sum : want.v) sum *= 2;
  ExpectClose(Converted<double>(got).v, want.v, tolerance);
}

TEST(NarrowWeight, ProductsAreThoseOfItsNumbers) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 13}) {
    for (const int64_t n : {1, 3, 4, 21, 70}) ExpectProduct({m, n, 35}, n % 2 == 0);
  }
  for (const int64_t k : {1, 15, 16, 17, 300}) ExpectProduct({7, 9, k}, true);
  ExpectProduct({50, 33, 6000}, false);  // Not all rows fit into a cache.
}

TEST(NarrowWeight, GeluOfTheProduct) {
  const auto x = Normal<float>({3, 20}, 1);
  const auto w = Normal<bf16>({10, 20}, 2);
  const auto wide = Converted<float>(w);
  auto product = Poison<float>({3, 10}), y = product, want_product = product, want = product;
  Call(MatMulGeluForwardArgs{.x = x, .w = w, .product = product, .y = y});
  Call(MatMulGeluForwardArgs{.x = x, .w = wide, .product = want_product, .y = want});
  ExpectClose(y.v, want.v, Tolerance(DType::kF32, 20));
}

TEST(NarrowWeight, RowsOfATableAreWidened) {
  const auto table = Normal<bf16>({7, 33}, 1);
  const auto tokens = Indices({40}, 7, 2);
  auto y = Poison<float>({40, 33});
  Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y, .scale = 1.7});
  for (int64_t i = 0; i < 40 * 33; ++i) {
    ASSERT_EQ(y.v[i], 1.7f * float(table.v[tokens.v[i / 33] * 33 + i % 33]));
  }
}

}  // namespace
}  // namespace trainyard::testing
