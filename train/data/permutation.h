// A random order of 0 .. size - 1 that needs no memory: a keyed bijection, evaluated where it is
// wanted.

#pragma once

#include <cstdint>

namespace trainyard {

// Where element `index` goes. Bijective in index for every key; O(1) expected time. A Feistel
// network over the smallest power of two that holds `size`, walked until the result is below `size`
// (cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary finite domains", section 3.2).
// CHECKs 0 <= index < size <= 2^62.
int64_t Permute(uint64_t key, int64_t size, int64_t index);

}  // namespace trainyard
