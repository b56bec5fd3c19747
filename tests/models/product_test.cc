// Proves that a product which no kernel computes is refused by name, before any kernel is asked
// for. That each other product is the right one, the gradients of whole models prove.
#include "models/program/product.h"

#include <gtest/gtest.h>

namespace trainyard::testing {
namespace {

class ProductDeathTest : public ::testing::Test {
 protected:
  float number_ = 0;
  const Tensor some_ = {{&number_, DType::kF32, {1, 1}}};
};

TEST_F(ProductDeathTest, NamesWhatNoKernelDoesBesides) {
  using enum ProductRole;
  EXPECT_DEATH(Check({.role = kInputGradient, .epilogue = {.bias = some_}}),
               "input gradient with a bias");
  EXPECT_DEATH(Check({.role = kForward, .epilogue = {.bias = some_, .bias_factor = some_}}),
               "forward with a factor of the bias");
  EXPECT_DEATH(Check({.role = kForward, .offsets = some_, .epilogue = {.gelu = some_}}),
               "forward of groups with GELU");
  EXPECT_DEATH(Check({.role = kForward, .epilogue = {.gelu_input = some_}}),
               "forward with GELU's derivative");
}

TEST_F(ProductDeathTest, NamesTheSumThatNoKernelMakes) {
  using enum ProductRole;
  EXPECT_DEATH(Check({.role = kForward, .offsets = some_, .write = Write::kAdd}),
               "forward of groups with a sum as its output");
  EXPECT_DEATH(Check({.role = kForward, .epilogue = {.bias = some_}, .write = Write::kAdd}),
               "forward with a sum as its output");
  Check({.role = kWeightGradient, .offsets = some_, .write = Write::kAdd});
  Check({.role = kInputGradient, .write = Write::kAdd});
}

}  // namespace
}  // namespace trainyard::testing
