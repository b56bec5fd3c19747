// The rates that devices are measured by: that they can be, of every dtype, and in which unit.

#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/matrix_rate.h"
#include "kernels/measured_operand.h"
#include "kernels/memory_rate.h"
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

// Bug it must catch: a GPU's rate of equal numbers, which no model's products reach (on an H200 894
// TFLOP/s of zeroes, 788 of random numbers).
TEST(MeasuredOperand, IsRandomOnAGpu) {
  std::vector<float> a(1000), b(1000);
  Exec exec = TestedBackend().NewExec(1);
  for (auto* values : {&a, &b}) {
    const Tensor tensor{{values->data(), DType::kF32, {10, 100}}};
    ASSERT_TRUE(FillMeasuredOperand(TestedBackend(), exec, tensor, values == &a ? 1 : 2).ok());
  }
  TestedBackend().Synchronize(exec);
  const std::set<float> different(a.begin(), a.end());
  if (TestedBackend().device() == DeviceKind::kCpu) {
    EXPECT_EQ(different, std::set<float>{0.5f});
  } else {
    EXPECT_GT(different.size(), 900u);
    EXPECT_NE(a, b);
  }
}

}  // namespace
}  // namespace trainyard::testing
