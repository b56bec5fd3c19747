// Defines the keys that a query of attention sees. Every mask is an interval of keys for each
// query. For query i in a sequence of S tokens the interval is
//
//   causal             [0, i]
//   causal, window W   [max(0, i - W + 1), i]     the query's own key and the W - 1 before
//   full               [0, S)
//
// If several documents share a sequence, a query sees only those of these keys that belong to its
// own document.
//
// Sources: window: Beltagy et al. 2020, arXiv:2004.05150, and Mistral 7B, arXiv:2310.06825, whose
// count is used here; documents: Llama Team 2024, arXiv:2407.21783, section 3.2.

#pragma once

#include <algorithm>
#include <cstdint>

#include "common/check.h"

namespace trainyard {

struct AttentionMask {
  bool causal = true;
  int64_t window = 0;  // Keys that a query sees, its own included; 0: no limit. Causal only.

  bool operator==(const AttentionMask&) const = default;
};

// Keys [begin, end).
struct KeyInterval {
  int64_t begin;
  int64_t end;
};

// The keys that the query at position i sees in a sequence of `keys` keys.
constexpr KeyInterval KeysSeen(const AttentionMask& mask, int64_t i, int64_t keys) {
  return {.begin = mask.window > 0 ? std::max<int64_t>(0, i - mask.window + 1) : 0,
          .end = mask.causal ? std::min(i + 1, keys) : keys};
}

// The number of query/key pairs that the mask allows for queries [begin, end) of a sequence of
// `keys` tokens.
inline double PairsSeen(const AttentionMask& mask, int64_t begin, int64_t end, int64_t keys) {
  if (!mask.causal) return double(end - begin) * double(keys);
  // Pairs of the first n queries: a triangle, and below it a band.
  const auto first = [&](int64_t n) {
    const int64_t rising = mask.window > 0 ? std::min(n, mask.window) : n;
    return double(rising) * double(rising + 1) / 2 + double(n - rising) * double(mask.window);
  };
  return first(end) - first(begin);
}

inline void Check(const AttentionMask& mask) {
  CHECK(mask.window >= 0) << "attention window: " << mask.window << ", legal are 0 (none) and up";
  CHECK(mask.causal || mask.window == 0)
      << "attention window: " << mask.window << " of a full mask, legal is 0 (none)";
}

}  // namespace trainyard
