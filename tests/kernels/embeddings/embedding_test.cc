// Proves kernels/embeddings/embedding.h on the CPU: rows are copied bit for bit, gradients equal a
// plain sum in token order and numeric differentiation, bad tokens are named.

#include "kernels/embeddings/embedding.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::embedding {

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

TEST(Embedding, ScalesRowsAndGradients) {
  const auto table = Normal<double>({5, 7}, 1);
  const auto tokens = Indices({9}, 5, 2);
  const auto dy = Normal<double>({9, 7}, 3);
  auto y = Poison<double>(dy.shape), dtable = Poison<double>(table.shape), plain = dtable;
  Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y, .scale = 3.5});
  for (int64_t i = 0; i < 9 * 7; ++i) {
    EXPECT_EQ(y.v[i], 3.5 * table.v[tokens.v[i / 7] * 7 + i % 7]);
  }
  EmbeddingBackwardArgs backward{
      .dy = dy, .tokens = tokens, .dtable = plain, .write = Write::kOverwrite};
  Call(backward);
  backward.dtable = dtable, backward.scale = 3.5;
  Call(backward);
  for (double& x : plain.v) x *= 3.5;
  ExpectClose(dtable.v, plain.v, 1e-15);
}

// In bf16 the scale is rounded before it multiplies.
TEST(Embedding, RoundsTheScaleToTheTablesType) {
  const Array<bf16> table = {{1, 1}, {bf16(1)}};
  const Array<int32_t> tokens = {{1}, {0}};
  auto y = Poison<bf16>({1, 1});
  Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y, .scale = 55.4256});
  EXPECT_EQ(float(y.v[0]), 55.5F);
}

template <typename T>
void ExpectAddsInTokenOrder(const Array<int32_t>& tokens, int64_t vocab, int64_t d, int threads) {
  using A = Accumulate<T>;
  const auto dy = Normal<T>({tokens.shape.elements(), d}, 1);
  auto want = Zeros<A>({vocab, d});
  auto got = Poison<A>({vocab, d});
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t i = 0; i < int64_t(dy.v.size()); ++i) {
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
  const auto tokens = Indices({kTokens}, kVocab, 2);
  for (int threads : {1, 2, 3}) {
    ExpectAddsInTokenOrder<double>(tokens, kVocab, 24, threads);
    ExpectAddsInTokenOrder<float>(tokens, kVocab, 131, threads);
    ExpectAddsInTokenOrder<bf16>(tokens, kVocab, 131, threads);
    ExpectAddsInTokenOrder<bf16>(tokens, kVocab, 1040, threads);
  }
}

// Ids of three bytes, most of which occur once; one makes up a third of the tokens.
TEST(Embedding, BackwardAddsInTokenOrderForALargeVocabulary) {
  constexpr int32_t kLarge = 70001;
  auto tokens = Indices({9000}, kLarge, 2);
  for (size_t t = 0; t < tokens.v.size(); t += 3) tokens.v[t] = 66000;
  tokens.v[1] = kLarge - 1, tokens.v[2] = 0;
  ExpectAddsInTokenOrder<float>(tokens, kLarge, 2, 2);
  ExpectAddsInTokenOrder<bf16>(tokens, kLarge, 1, 2);
}

// Tokens that occur about as often as CUDA's kernel loads rows together (256), or a multiple of
// that.
TEST(Embedding, BackwardAddsInTokenOrderForFrequentTokens) {
  constexpr int32_t kOccurrences[] = {256, 257, 255, 1, 511, 513, 1025, 3};
  constexpr int32_t kAll = 2821, kStride = 997;  // No common divisor.
  auto tokens = Zeros<int32_t>({kAll});
  int32_t placed = 0;
  for (int32_t token = 0; token < 8; ++token) {
    for (int32_t i = 0; i < kOccurrences[token]; ++i) {
      tokens.v[size_t(placed++ * kStride % kAll)] = token;
    }
  }
  ASSERT_EQ(placed, kAll);
  ExpectAddsInTokenOrder<double>(tokens, 8, 34, 2);
  ExpectAddsInTokenOrder<float>(tokens, 8, 36, 2);
  ExpectAddsInTokenOrder<float>(tokens, 8, 35, 2);
  ExpectAddsInTokenOrder<bf16>(tokens, 8, 136, 2);
  ExpectAddsInTokenOrder<bf16>(tokens, 8, 3, 2);
}

// As many rows as a byte has values: the tokens that the slice does not hold are not those of row
// 0.
TEST(Embedding, BackwardOfASliceLeavesOtherTokensOut) {
  constexpr int64_t kFirst = 100, kRows = 256;
  const auto tokens = Indices({3000}, 600, 2);
  const auto dy = Normal<float>({3000, 1}, 1);
  auto want = Zeros<float>({kRows, 1}), got = Poison<float>({kRows, 1});
  for (size_t t = 0; t < tokens.v.size(); ++t) {
    const int64_t row = tokens.v[t] - kFirst;
    if (row >= 0 && row < kRows) want.v[row] += dy.v[t];
  }
  Call(EmbeddingBackwardArgs{.dy = dy,
                             .tokens = tokens,
                             .dtable = got,
                             .write = Write::kOverwrite,
                             .slice = {.first = kFirst, .vocab = 600}});
  EXPECT_EQ(got.v, want.v);
}

template <typename T>
void ExpectNoGradientOfPadding(const VocabSlice& slice, int64_t rows) {
  const auto tokens = Indices({kTokens}, kVocab, 2);
  const auto dy = Normal<T>({kTokens, 3}, 1);
  auto want = Zeros<Accumulate<T>>({rows, 3}), got = want;
  EmbeddingBackwardArgs args{
      .dy = dy, .tokens = tokens, .dtable = want, .write = Write::kOverwrite, .slice = slice};
  Call(args);
  constexpr int64_t kPadding = 4;
  const int64_t row = kPadding - slice.first;
  ASSERT_NE(want.v[row * 3], 0);
  std::fill_n(want.v.begin() + row * 3, 3, 0);
  args.dtable = got, args.padding = kPadding;
  Call(args);
  EXPECT_EQ(got.v, want.v);
}

TEST(Embedding, PaddingGetsNoGradient) {
  ExpectNoGradientOfPadding<double>({}, kVocab);
  ExpectNoGradientOfPadding<float>({}, kVocab);
  ExpectNoGradientOfPadding<bf16>({.first = 2, .vocab = kVocab}, 5);
}

// Rows [first, first + count) of a table.
template <typename T>
Array<T> RowsOf(const Array<T>& table, int64_t first, int64_t count) {
  const int64_t d = table.shape[1];
  return {{count, d}, {table.v.begin() + first * d, table.v.begin() + (first + count) * d}};
}

// Outputs of the slices add up to that of the whole, with a single term that is not zero; gradients
// of the slices stand side by side.
template <typename T>
void ExpectSlicesAddUp(int ranks) {
  using A = Accumulate<T>;
  constexpr int64_t d = 24;
  const auto table = Normal<T>({kVocab, d}, 1), dy = Normal<T>({kTokens, d}, 3);
  const auto tokens = Indices({kTokens}, kVocab, 2);
  auto want_y = Poison<T>(dy.shape);
  auto want_dtable = Normal<A>(table.shape, 4);
  const auto dtable = want_dtable;
  Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = want_y});
  Call(EmbeddingBackwardArgs{
      .dy = dy, .tokens = tokens, .dtable = want_dtable, .write = Write::kAdd});
  auto sum = Zeros<A>(dy.shape);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t first = kVocab * rank / ranks, count = kVocab * (rank + 1) / ranks - first;
    const VocabSlice slice = {.first = first, .vocab = kVocab};
    auto y = Poison<T>(dy.shape);
    Call(EmbeddingForwardArgs{
        .table = RowsOf(table, first, count), .tokens = tokens, .y = y, .slice = slice});
    for (size_t i = 0; i < y.v.size(); ++i) sum.v[i] += A(y.v[i]);
    auto got = RowsOf(dtable, first, count);
    Call(EmbeddingBackwardArgs{
        .dy = dy, .tokens = tokens, .dtable = got, .write = Write::kAdd, .slice = slice});
    EXPECT_EQ(got.v, RowsOf(want_dtable, first, count).v) << "rank " << rank << " of " << ranks;
  }
  EXPECT_EQ(sum.v, Converted<A>(want_y).v) << ranks << " ranks";
}

TEST(Embedding, SlicesOfTheVocabularyAddUpToTheWhole) {
  for (int ranks : {1, 2, 3, 4}) {
    ExpectSlicesAddUp<double>(ranks);
    ExpectSlicesAddUp<float>(ranks);
    ExpectSlicesAddUp<bf16>(ranks);
  }
}

TEST(EmbeddingDeathTest, NamesATokenOutsideOfTheWholeVocabulary) {
  auto table = Zeros<float>({5, 4}), y = Zeros<float>({3, 4});
  const Array<int32_t> tokens = {{3}, {0, 11, 1}};
  const VocabSlice slice = {.first = 5, .vocab = 11};
  EXPECT_DEATH(Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y, .slice = slice}),
               "token 11 at 1, the vocabulary has 11 ids");
  EXPECT_DEATH(
      Call(EmbeddingBackwardArgs{
          .dy = y, .tokens = tokens, .dtable = table, .write = Write::kAdd, .slice = slice}),
      "token 11 at 1");
  EXPECT_DEATH(
      Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y, .slice = {.first = 1}}),
      "embedding slice: ids 1 to 6 of a vocabulary of 5");
}

TEST(EmbeddingDeathTest, NamesATokenOutOfRange) {
  auto table = Zeros<float>({5, 4}), y = Zeros<float>({3, 4});
  const Array<int32_t> tokens = {{3}, {0, 5, 1}}, negative = {{3}, {0, 1, -1}};
  EXPECT_DEATH(Call(EmbeddingForwardArgs{.table = table, .tokens = tokens, .y = y}),
               "token 5 at 1, the vocabulary has 5 ids");
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

}  // namespace trainyard::testing::embedding
