// Documents for the tests of recurrent ops.

#pragma once

#include <algorithm>
#include <vector>

#include "tests/testing/array.h"

namespace trainyard::testing {

// How many tokens of a part's first document lie before the part.
inline constexpr int32_t kTokensBeforePart = 2;

// The positions in their documents of tokens in parts of `sequence` tokens each. A document begins
// with each token of `begins`, counted over all parts. If there are no documents, the result has no
// data.
inline Array<int32_t> DocumentPositions(int64_t tokens, int64_t sequence,
                                        const std::vector<int64_t>& begins) {
  if (begins.empty()) return {};
  auto positions = Zeros<int32_t>({tokens});
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t& position = positions.v[size_t(t)];
    position = t % sequence == 0 ? kTokensBeforePart : positions.v[size_t(t - 1)] + 1;
    if (std::find(begins.begin(), begins.end(), t) != begins.end()) position = 0;
  }
  return positions;
}

// All tokens of [0, tokens): each is a document.
inline std::vector<int64_t> EveryToken(int64_t tokens) {
  std::vector<int64_t> begins;
  for (int64_t t = 0; t < tokens; ++t) begins.push_back(t);
  return begins;
}

// Calls body(first, count) for each document, the first of which begins with token 0.
template <typename Body>
void ForEachDocument(int64_t tokens, const std::vector<int64_t>& begins, const Body& body) {
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : tokens;
    body(begins[i], end - begins[i]);
  }
}

// Rows [first, first + rows).
template <typename T>
Array<T> RowsOf(const Array<T>& whole, int64_t first, int64_t rows) {
  const int64_t columns = whole.shape.back();
  return {{rows, columns},
          {whole.v.begin() + first * columns, whole.v.begin() + (first + rows) * columns}};
}

}  // namespace trainyard::testing
