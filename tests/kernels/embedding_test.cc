// Proves kernels/embedding.h on the CPU: rows are copied bit for bit, gradients equal a plain sum
// in token order and numeric differentiation, bad tokens are named.

#include "kernels/embedding.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kVocab = 11, kTokens = 300;

template <typename T>
void ExpectCopiesRows(int64_t d) {
  const auto table = Normal<T>({kVocab, d}, 1);
  const auto tokens = Indices({kTokens}, kVocab, 2);
  auto y = Poison<T>({kTokens, d});
  Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y});
  for (int64_t i = 0; i < kTokens * d; ++i) {
    ASSERT_EQ(y.v[i], table.v[tokens.v[i / d] * d + i % d]);
  }
}

TEST(Embedding, ForwardCopiesRows) {
  for (int64_t d : {1, 24, 131}) {
    ExpectCopiesRows<double>(d);
    ExpectCopiesRows<float>(d);
    ExpectCopiesRows<bf16>(d);
  }
}

TEST(Embedding, BackwardMatchesNumericGradient) {
  auto table = Normal<double>({5, 7}, 1);
  const auto tokens = Indices({2, 9}, 5, 2);
  const auto dy = Normal<double>({2, 9, 7}, 3);
  auto y = Poison<double>(dy.shape), dtable = Poison<double>(table.shape);
  const auto want = NumericGrad(table.v, [&] {
    Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y});
    return Dot(y, dy);
  });
  Call(EmbeddingBackwardArgs{
      .dy = dy, .tokens = tokens, .dtable = dtable, .write = Write::kOverwrite});
  ExpectClose(dtable.v, want, 1e-8);
}

template <typename T>
void ExpectAddsInTokenOrder(int64_t d, int threads) {
  using A = Accumulate<T>;
  const auto dy = Normal<T>({kTokens, d}, 1);
  const auto tokens = Indices({kTokens}, kVocab, 2);
  auto want = Zeros<A>({kVocab, d});
  auto got = Poison<A>({kVocab, d});
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t i = 0; i < kTokens * d; ++i) {
      want.v[tokens.v[i / d] * d + i % d] += A(dy.v[i]);
    }
    Call(EmbeddingBackwardArgs{.dy = dy,
                               .tokens = tokens,
                               .dtable = got,
                               .write = pass == 0 ? Write::kOverwrite : Write::kAdd},
         threads);
    ASSERT_EQ(got.v, want.v);
  }
}

TEST(Embedding, BackwardAddsInTokenOrderForAnyThreadCount) {
  for (int threads : {1, 2, 3}) {
    ExpectAddsInTokenOrder<double>(24, threads);
    ExpectAddsInTokenOrder<float>(131, threads);
    ExpectAddsInTokenOrder<bf16>(131, threads);
  }
}

TEST(EmbeddingDeathTest, NamesATokenOutOfRange) {
  auto table = Zeros<float>({5, 4}), y = Zeros<float>({3, 4});
  const Array<int32_t> tokens = {{3}, {0, 5, 1}}, negative = {{3}, {0, 1, -1}};
  EXPECT_DEATH(Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y}),
               "token 5 at 1, the table has 5 rows");
  EXPECT_DEATH(Call(EmbeddingForwardArgs{.table = table, .tokens = negative, .y = y}),
               "token -1 at 2");
  EXPECT_DEATH(
      Call(EmbeddingBackwardArgs{.dy = y, .tokens = tokens, .dtable = table, .write = Write::kAdd}),
      "token 5 at 1");
}

TEST(EmbeddingDeathTest, NamesTheArgumentOfWrongShape) {
  auto table = Zeros<float>({5, 4}), y = Zeros<float>({3, 5});
  const Array<int32_t> tokens = {{3}, {0, 1, 2}};
  EXPECT_DEATH(Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y}),
               "embedding y: wanted f32 \\[3, 4\\]");
}

}  // namespace
}  // namespace trainyard::testing
