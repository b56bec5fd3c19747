// A random order of the numbers 0 to size - 1 that needs no memory: a bijection with a key, which
// is computed for one number at a time.

#pragma once

#include <cstdint>

namespace trainyard {

// Returns the place of element `index` in the order. For every key, the function is a bijection of
// `index`. CHECKs 0 <= index < size <= 2^62. The expected time is O(1).
//
// The function applies a Feistel network over the smallest power of two that is at least `size`,
// again and again until the result is below `size`.
// Source: cycle walking, Black & Rogaway 2002, "Ciphers with arbitrary finite domains", section
// 3.2.
int64_t Permute(uint64_t key, int64_t size, int64_t index);
// The inverse: returns the element at `place`.
int64_t Unpermute(uint64_t key, int64_t size, int64_t place);

}  // namespace trainyard
