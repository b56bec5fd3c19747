// Proves that recurrent layers which read texts piece by piece, several at once, and keep what they
// need, compute what causal_conv.h and state_scan.h compute of each text as a whole. Tokens that
// nobody reads lie between them, and texts begin anew where others were.

#include "kernels/state_space/kept_state.h"

#include <random>

#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/printed_seed.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::kept_state {

constexpr int64_t kTexts = 3, kTextRows = 40;
// Wider than a block of the kernels, and than a vector.
constexpr StateDims kDims = {.heads = 6, .groups = 2, .head_dim = 70, .state = 5, .sequence = 1};

// Which token of which text each token of a call is; -1: none.
struct Token {
  int64_t text = -1, position = 0;
};

// Calls that read `length` tokens of each text in random pieces.
std::vector<std::vector<Token>> RandomCalls(int64_t length, std::mt19937_64& random) {
  std::vector<std::vector<Token>> calls;
  std::vector<int64_t> read(kTexts, 0);
  while (*std::min_element(read.begin(), read.end()) < length) {
    std::vector<Token>& call = calls.emplace_back();
    for (int64_t text = 0; text < kTexts; ++text) {
      for (int64_t n = int64_t(random() % 5); n > 0 && read[size_t(text)] < length; --n) {
        call.push_back({text, read[size_t(text)]++});
        if (random() % 4 == 0) call.push_back({});
      }
    }
    if (call.empty()) call.push_back({});
  }
  return calls;
}

template <typename T>
std::vector<T> RowOf(const Array<T>& array, int64_t row) {
  const auto width = array.v.size() / size_t(array.shape[0]);
  const auto begin = array.v.begin() + std::ptrdiff_t(size_t(row) * width);
  return {begin, begin + std::ptrdiff_t(width)};
}

// Calls `read` with the rows of each call, which are those of the whole texts [texts, length, ...],
// and collects its outputs in the same order.
template <typename T>
Array<T> InPieces(int64_t length, int64_t columns, uint64_t seed, const auto& read) {
  std::mt19937_64 random(seed);
  auto outputs = Poison<T>({kTexts * length, columns});
  for (const std::vector<Token>& call : RandomCalls(length, random)) {
    auto rows = Filled<int32_t>({int64_t(call.size())}, -1);
    std::vector<int64_t> from;
    for (size_t i = 0; i < call.size(); ++i) {
      if (call[i].text >= 0) rows.v[i] = int32_t(call[i].text * kTextRows + call[i].position);
      from.push_back(call[i].text < 0 ? 0 : call[i].text * length + call[i].position);
    }
    const Array<T> y = read(from, rows);
    for (size_t i = 0; i < call.size(); ++i) {
      const std::vector<T> row = RowOf(y, int64_t(i));
      if (call[i].text < 0) {
        EXPECT_EQ(row, std::vector<T>(row.size(), T(0.0f)));
      } else {
        std::copy(row.begin(), row.end(), outputs.v.begin() + from[i] * columns);
      }
    }
  }
  return outputs;
}

template <typename T>
Array<T> Gathered(const Array<T>& all, const std::vector<int64_t>& rows) {
  Array<T> some = {{int64_t(rows.size()), all.shape.back()}, {}};
  for (const int64_t row : rows) {
    const std::vector<T> one = RowOf(all, row);
    some.v.insert(some.v.end(), one.begin(), one.end());
  }
  return some;
}

template <typename T>
void ExpectConvolution(int64_t taps, uint64_t seed) {
  constexpr int64_t kChannels = 37;
  const auto weight = Normal<T>({kChannels, 1, taps}, 2), bias = Normal<T>({kChannels}, 3);
  auto kept = Poison<T>({kTexts, (taps - 1) * kChannels});
  for (const int64_t length : {int64_t{1}, int64_t{11}}) {  // The second texts begin anew.
    const auto x = Normal<T>({kTexts * length, kChannels}, uint64_t(length));
    auto want = Poison<T>(x.shape);
    Call(CausalConvForwardArgs{
        .x = x, .weight = weight, .bias = bias, .sequence = length, .y = want});
    const auto read = [&](const std::vector<int64_t>& from, const Array<int32_t>& rows) {
      const Array<T> some = Gathered(x, from);
      auto y = Poison<T>(some.shape);
      Call(KeptConvArgs{.x = some,
                        .weight = weight,
                        .bias = bias,
                        .rows = rows,
                        .text_rows = kTextRows,
                        .kept = kept,
                        .y = y});
      return y;
    };
    const Array<T> got = InPieces<T>(length, kChannels, seed, read);
    ExpectClose(Converted<double>(got).v, Converted<double>(want).v,
                Tolerance(DTypeOf<T>::value, taps));
  }
}

TEST(KeptState, ConvolutionsOfPiecesAreThoseOfTheWhole) {
  const uint64_t seed = PrintedSeed();
  for (const int64_t taps : {2, 4, 8}) {
    ExpectConvolution<double>(taps, seed);
    ExpectConvolution<float>(taps, seed);
    ExpectConvolution<bf16>(taps, seed);
  }
}

template <typename T>
void ExpectScan(uint64_t seed) {
  using A = Accumulate<T>;
  const auto dt_bias = Normal<A>({kDims.heads}, 2), a_log = Normal<A>({kDims.heads}, 3);
  const auto d = Normal<A>({kDims.heads}, 4);
  auto kept = Poison<A>({kTexts, kDims.state_columns()});
  for (const int64_t length : {int64_t{1}, int64_t{17}}) {
    StateDims dims = kDims;
    dims.sequence = length, dims.min_step = 0.01, dims.max_step = 2;
    const auto xbc = Normal<T>({kTexts * length, dims.columns()}, uint64_t(length) + 10);
    const auto dt = Normal<T>({kTexts * length, dims.heads}, uint64_t(length) + 20);
    auto want = Poison<T>({kTexts * length, dims.inner()});
    Call(StateScanForwardArgs{
        .xbc = xbc, .dt = dt, .dt_bias = dt_bias, .a_log = a_log, .d = d, .dims = dims, .y = want});
    const auto read = [&](const std::vector<int64_t>& from, const Array<int32_t>& rows) {
      const Array<T> some = Gathered(xbc, from), steps = Gathered(dt, from);
      auto y = Poison<T>({int64_t(from.size()), dims.inner()});
      Call(KeptScanArgs{.xbc = some,
                        .dt = steps,
                        .dt_bias = dt_bias,
                        .a_log = a_log,
                        .d = d,
                        .dims = dims,
                        .rows = rows,
                        .text_rows = kTextRows,
                        .kept = kept,
                        .y = y});
      return y;
    };
    const Array<T> got = InPieces<T>(length, dims.inner(), seed, read);
    ExpectClose(Converted<double>(got).v, Converted<double>(want).v,
                4 * Tolerance(DTypeOf<T>::value, length * dims.state));
  }
}

TEST(KeptState, ScansOfPiecesAreThoseOfTheWhole) {
  const uint64_t seed = PrintedSeed();
  ExpectScan<double>(seed);
  ExpectScan<float>(seed);
  ExpectScan<bf16>(seed);
}

}  // namespace trainyard::testing::kept_state
