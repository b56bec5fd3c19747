// Where documents begin, for the ops of recurrent layers. A token reads nothing from before its
// document, and nothing of it reaches a later document.
//
// An op gets each token's position in its document: the number of the document's earlier tokens.
// Some of these may lie before the token's part of the sequence.

#pragma once

#include <limits>

#include "kernels/device/expect.h"

namespace trainyard {

struct DocumentBorders {
  const int32_t* positions = nullptr;  // [T]. Null: all documents have begun long before.

  // The number of the token with which the document of token `first` + t begins, counted from token
  // `first`. It is negative if the document begins before `first`.
  constexpr int64_t BeginOf(int64_t first, int64_t t) const {
    return positions == nullptr ? std::numeric_limits<int64_t>::min() : t - positions[first + t];
  }
};

inline DocumentBorders BordersOf(const ConstTensor& positions) {
  return {positions.data == nullptr ? nullptr : positions.as<int32_t>()};
}

// Checks the positions that an op gets, if any.
inline void ExpectDocumentPositions(const char* what, const ConstTensor& positions,
                                    int64_t tokens) {
  if (positions.data != nullptr) ExpectElements(what, positions, DType::kI32, tokens);
}

}  // namespace trainyard
