// The ids of a vocabulary that a tensor has, if ranks divide the vocabulary.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

// Ids [first, first + count) of [0, vocab); count is the number of rows or columns of the tensor.
// The default is the whole vocabulary.
struct VocabSlice {
  int64_t first = 0;
  int64_t vocab = 0;  // 0: count
};

inline int64_t VocabOf(const VocabSlice& slice, int64_t count) {
  return slice.vocab == 0 ? count : slice.vocab;
}

inline void ExpectSlice(const char* name, const VocabSlice& slice, int64_t count) {
  CHECK(slice.first >= 0 && slice.first + count <= VocabOf(slice, count))
      << name << ": ids " << slice.first << " to " << slice.first + count << " of a vocabulary of "
      << VocabOf(slice, count);
}

}  // namespace trainyard
