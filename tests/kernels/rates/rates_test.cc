// The rates that devices are measured by: that they can be, of every dtype, and in which unit.

#include "gtest/gtest.h"
#include "kernels/rates/matrix_rate.h"
#include "kernels/rates/memory_rate.h"
#include "tests/kernels/call.h"

namespace trainyard::testing {
namespace {

TEST(MatrixRate, IsPositiveForEveryDType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const auto rate = MeasureMatrixRate(TestedBackend(), dtype, 2);
    ASSERT_TRUE(rate.ok()) << rate.status();
    EXPECT_GT(*rate, 1e6);
  }
}

// Each of n^2 elements is a sum of n products. The unit is that of published peaks, and of what
// models count (models/arch/flops.h).
TEST(MatrixRate, CountsMultiplicationsAndAdditions) {
  EXPECT_EQ(SquareProductFlops(1), 2);
  EXPECT_EQ(SquareProductFlops(1000), 2e9);
  EXPECT_EQ(SquareProductFlops(4096), 137438953472.0);
}

TEST(MemoryRate, IsPositive) {
  const auto rate = MeasureMemoryRate(TestedBackend(), 2);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 1e6);
}

}  // namespace
}  // namespace trainyard::testing
