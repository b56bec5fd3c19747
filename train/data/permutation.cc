#include "train/data/permutation.h"

#include <bit>

#include "common/check.h"
#include "common/rng.h"

namespace trainyard {
namespace {

constexpr int kRounds = 8;

// A Feistel network over the numbers of as many bits as `size` - 1 has. Each half is changed by a
// function of the other half alone, and such a change can be undone. So every round is a bijection,
// also if the halves differ in width.
class Network {
 public:
  Network(uint64_t key, int64_t size)
      : key_(key),
        low_bits_(std::bit_width(uint64_t(size - 1)) / 2),
        low_mask_((uint64_t{1} << low_bits_) - 1),
        high_mask_((uint64_t{1} << (std::bit_width(uint64_t(size - 1)) - low_bits_)) - 1) {}

  uint64_t Forward(uint64_t x) const {
    uint64_t low = x & low_mask_, high = x >> low_bits_;
    for (int round = 0; round < kRounds; round += 2) {
      high ^= RandomBits(key_, uint64_t(round), low) & high_mask_;
      low ^= RandomBits(key_, uint64_t(round + 1), high) & low_mask_;
    }
    return high << low_bits_ | low;
  }
  uint64_t Backward(uint64_t x) const {
    uint64_t low = x & low_mask_, high = x >> low_bits_;
    for (int round = kRounds - 2; round >= 0; round -= 2) {
      low ^= RandomBits(key_, uint64_t(round + 1), high) & low_mask_;
      high ^= RandomBits(key_, uint64_t(round), low) & high_mask_;
    }
    return high << low_bits_ | low;
  }

 private:
  const uint64_t key_;
  const int low_bits_;
  const uint64_t low_mask_, high_mask_;
};

void CheckIndex(int64_t size, int64_t index) {
  CHECK(index >= 0 && index < size && size <= int64_t{1} << 62) << index << " of " << size;
}

}  // namespace

int64_t Permute(uint64_t key, int64_t size, int64_t index) {
  CheckIndex(size, index);
  const Network network(key, size);
  uint64_t x = uint64_t(index);
  do {
    x = network.Forward(x);
  } while (x >= uint64_t(size));
  return int64_t(x);
}

int64_t Unpermute(uint64_t key, int64_t size, int64_t place) {
  CheckIndex(size, place);
  const Network network(key, size);
  uint64_t x = uint64_t(place);
  do {
    x = network.Backward(x);
  } while (x >= uint64_t(size));
  return int64_t(x);
}

}  // namespace trainyard
