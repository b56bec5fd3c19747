// Which ids of a vocabulary a tensor holds, where ranks share the vocabulary out.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

// Ids [first, first + count) of [0, vocab), where count is the rows or columns of the tensor. By
// default the tensor is the whole vocabulary.
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
