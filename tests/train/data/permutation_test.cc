// Proves that the order of samples is a bijection for every size and key, and that it mixes.

#include "train/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

namespace trainyard {
namespace {

// Catches a round that is not invertible, and a walk that ends outside of the domain.
TEST(Permute, IsABijectionForEverySize) {
  for (int64_t size = 1; size <= 600; ++size) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
      std::vector<bool> seen(size_t(size), false);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t to = Permute(key, size, i);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, size);
        ASSERT_FALSE(seen[size_t(to)]) << size << ", " << key << ", " << i;
        seen[size_t(to)] = true;
        ASSERT_EQ(Unpermute(key, size, to), i) << size << ", " << key;
      }
    }
  }
}

TEST(Permute, StaysInAHugeDomain) {
  const int64_t size = (int64_t{1} << 62) - 12345;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t to = Permute(3, size, size - 1 - i);
    EXPECT_GE(to, 0);
    EXPECT_LT(to, size);
  }
}

// A random permutation leaves one element in its place on average and moves neighbours a third of
// the domain apart. Catches too few rounds.
TEST(Permute, Mixes) {
  constexpr int64_t kSize = 10'000;
  for (uint64_t key = 0; key < 20; ++key) {
    int64_t fixed = 0;
    double distance = 0;
    for (int64_t i = 0; i + 1 < kSize; ++i) {
      fixed += Permute(key, kSize, i) == i;
      distance += double(std::llabs(Permute(key, kSize, i) - Permute(key, kSize, i + 1)));
    }
    EXPECT_LE(fixed, 10);
    // The mean's own deviation is 0.2357 * size / sqrt(size), since |a - b| deviates by size /
    // sqrt(18): 5 of them.
    EXPECT_NEAR(distance / double(kSize), double(kSize) / 3, 5 * 0.2357 * std::sqrt(double(kSize)));
  }
}

TEST(Permute, DiffersByKey) {
  int equal = 0;
  for (int64_t i = 0; i < 1000; ++i) equal += Permute(1, 1000, i) == Permute(2, 1000, i);
  EXPECT_LT(equal, 15);
}

}  // namespace
}  // namespace trainyard
