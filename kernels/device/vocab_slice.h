// The ids of a vocabulary that a tensor has, if ranks divide the vocabulary.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

// Ids [first, first + count - padding) of [0, vocab); count is the number of rows or columns of the
// tensor. The last `padding` of these stand for no id. The default is the whole vocabulary.
struct VocabSlice {
  int64_t first = 0;
  int64_t vocab = 0;  // 0: the ids of the tensor
  int64_t padding = 0;
};

// The number of ids that a tensor with so many rows or columns has.
inline int64_t IdsOf(const VocabSlice& slice, int64_t count) { return count - slice.padding; }

inline int64_t VocabOf(const VocabSlice& slice, int64_t count) {
  return slice.vocab == 0 ? IdsOf(slice, count) : slice.vocab;
}

inline void ExpectSlice(const char* name, const VocabSlice& slice, int64_t count) {
  const int64_t end = slice.first + IdsOf(slice, count);
  CHECK(slice.first >= 0 && end <= VocabOf(slice, count))
      << name << ": ids " << slice.first << " to " << end << " of a vocabulary of "
      << VocabOf(slice, count);
  CHECK(slice.padding >= 0 && (slice.padding < count || count == 0))
      << name << ": padding " << slice.padding << " of " << count;
}

}  // namespace trainyard
