#include "train/data/permutation.h"

#include <bit>

#include "common/check.h"
#include "common/rng.h"

namespace trainyard {
namespace {

constexpr int kRounds = 8;

}  // namespace

int64_t Permute(uint64_t key, int64_t size, int64_t index) {
  CHECK(index >= 0 && index < size && size <= int64_t{1} << 62) << index << " of " << size;
  const int bits = std::bit_width(uint64_t(size - 1));
  const int low_bits = bits / 2;
  const uint64_t low_mask = (uint64_t{1} << low_bits) - 1;
  const uint64_t high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
  uint64_t x = uint64_t(index);
  do {
    uint64_t low = x & low_mask, high = x >> low_bits;
    // Each half is changed by a function of the other half alone, and such a change can be undone.
    // So every round is a bijection, also if the halves differ in width.
    for (int round = 0; round < kRounds; round += 2) {
      high ^= RandomBits(key, uint64_t(round), low) & high_mask;
      low ^= RandomBits(key, uint64_t(round + 1), high) & low_mask;
    }
    x = high << low_bits | low;
  } while (x >= uint64_t(size));
  return int64_t(x);
}

}  // namespace trainyard
