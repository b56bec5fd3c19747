// The rows of a sequence that a context-parallel rank has.
//
// A sequence is cut into 2n equal chunks for n ranks. Rank r has the chunks r and 2n-1-r, so that
// the causal triangle is divided evenly ("zig-zag").

#pragma once

#include <cstdint>

namespace trainyard {

struct SequencePart {
  int64_t rows = 0;   // Each sequence's rows on this rank; even unless ranks is 1.
  int64_t ranks = 1;  // n
  int64_t rank = 0;   // r

  // The position in the sequence of this rank's row s.
  constexpr int64_t position(int64_t s) const {
    const int64_t half = rows / 2;
    return s < half ? rank * half + s : (2 * ranks - 1 - rank) * half + (s - half);
  }
  constexpr bool valid() const {
    return rows > 0 && ranks > 0 && rank >= 0 && rank < ranks && (ranks == 1 || rows % 2 == 0);
  }
};

}  // namespace trainyard
