// What rates are measured of.

#include "kernels/rates/measured_operand.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/call.h"

namespace trainyard::testing::measured_operand {

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

}  // namespace trainyard::testing::measured_operand
