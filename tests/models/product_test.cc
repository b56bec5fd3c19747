// Proves that a product which no kernel computes is refused by name, before any kernel is asked
// for, and so is one of operands in another format than the precision says. That each other product
// is the right one, the gradients of whole models prove.
#include "models/program/product.h"

#include <gtest/gtest.h>

#include "models/program/recorder.h"

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

TEST_F(ProductDeathTest, NamesWhatNoKernelDoesWithScales) {
  using enum ProductRole;
  const OperandScales scales{.scales = some_};
  EXPECT_DEATH(Check({.role = kForward, .a_scales = scales}), "forward with scales of one operand");
  EXPECT_DEATH(Check({.role = kForward, .b_scales = scales}), "forward with scales of one operand");
  EXPECT_DEATH(
      Check(
          {.role = kForward, .a_scales = scales, .b_scales = scales, .epilogue = {.gelu = some_}}),
      "forward with scales");
  Check({.role = kWeightGradient, .a_scales = scales, .b_scales = scales, .write = Write::kAdd});
  Check({.role = kForward, .a_scales = scales, .b_scales = scales, .offsets = some_});
}

TEST_F(ProductDeathTest, NamesTheSumThatNoKernelMakes) {
  using enum ProductRole;
  EXPECT_DEATH(
      Check(
          {.role = kForward, .offsets = some_, .epilogue = {.bias = some_}, .write = Write::kAdd}),
      "forward of groups with a sum as its output");
  EXPECT_DEATH(Check({.role = kForward, .epilogue = {.bias = some_}, .write = Write::kAdd}),
               "forward with a sum as its output");
  for (const ProductRole role : {kForward, kInputGradient, kWeightGradient}) {
    Check({.role = role, .offsets = some_, .write = Write::kAdd});
  }
  Check({.role = kInputGradient, .write = Write::kAdd});
}

TEST_F(ProductDeathTest, NamesTheOperandOfAnotherFormat) {
  Recorder recorder(Precision::BF16(), {}, /*training=*/false);
  const Value x = recorder.Input("x", {3, 8}, DType::kBF16, {});
  const Value wide = recorder.Input("wide", {3, 8}, DType::kF32, {});
  const ProductUse router{ProductKind::kRouter, ProductRole::kForward};
  EXPECT_EQ(FormatOf(recorder, router, x, x), ProductFormat(DType::kBF16, DType::kF32));
  EXPECT_DEATH(FormatOf(recorder, router, x, wide),
               "router forward: the precision has an operand in bf16, found wide f32");
}

}  // namespace
}  // namespace trainyard::testing
