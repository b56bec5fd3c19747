// Proves which block each number of a matrix belongs to where the last blocks are smaller.
// train_hf_test compares with the public implementation.
#include "models/hf/block_fp8.h"

#include <vector>

#include "gtest/gtest.h"

namespace trainyard::testing {
namespace {

TEST(BlockFp8, TakesTheScaleOfTheBlock) {
  constexpr int64_t kRows = 130, kColumns = 257;
  const std::vector<uint8_t> ones(kRows * kColumns, 0x38);
  std::vector<bf16> y(ones.size());
  DequantizeBlockFp8(ones, std::vector<float>{1, 2, 3, 4, 5, 6}, kColumns, y);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      ASSERT_EQ(float(y[size_t(row * kColumns + column)]), row / 128 * 3 + column / 128 + 1);
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
