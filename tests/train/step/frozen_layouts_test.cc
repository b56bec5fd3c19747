// Proves that layouts with frozen parameters, or with adapters, compute what one rank does, in f64,
// under every axis, ZeRO and schedule, send what the formula says, and leave what is frozen as it
// was.

#include <gmock/gmock.h>

#include "tests/train/step/layouts.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-10;

class FrozenLayoutsTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(FrozenLayoutsTest, StepsEqualThoseOfOneRank) {
  const LayoutCase layout = HeldUp(GetParam());
  const TrainedSteps steps = Train(layout), one = TrainOnOneRank(layout);
  EXPECT_LT(LargestDifference(steps, one), kTolerance);
  // What has no gradient is frozen, and is there.
  EXPECT_LT(steps.gradients[0].size(), steps.weights.size());
  EXPECT_GT(steps.gradients[0].size(), 0u);
}

std::string NameOf(const ::testing::TestParamInfo<LayoutCase>& info) { return info.param.name(); }

INSTANTIATE_TEST_SUITE_P(Families, FrozenLayoutsTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           const size_t stride = family == "llama"       ? 7
                                                 : family == "gpt3"      ? 11
                                                 : family == "dit"       ? 13
                                                 : family == "qwen3_moe" ? 23
                                                                         : 37;
                           return FrozenLayouts(family, 8, stride);
                         })),
                         NameOf);

// All of up to four ranks for one family.
INSTANTIATE_TEST_SUITE_P(Adapters, FrozenLayoutsTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           if (family == "llama") return AdaptedLayouts(family, 4, 1);
                           return AdaptedLayouts(family, 8, 43);
                         })),
                         NameOf);

// All of up to four ranks for one family with experts.
INSTANTIATE_TEST_SUITE_P(AdaptedExperts, FrozenLayoutsTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           if (family == "qwen3_moe") return AdaptedExpertsLayouts(family, 4, 1);
                           return AdaptedExpertsLayouts(family, 8, 43);
                         })),
                         NameOf);

// All of up to four ranks for one family.
std::vector<LayoutCase> LayoutsInNf4() {
  std::vector<LayoutCase> cases = Nf4Layouts("llama", 4, 1);
  const auto add = [&](const std::vector<LayoutCase>& more) {
    cases.insert(cases.end(), more.begin(), more.end());
  };
  add(Nf4Layouts("qwen3_moe", 8, 23));
  for (const char* family : {"gpt3", "qwen2", "mixtral", "gpt_oss"}) {
    add(Nf4Layouts(family, 8, 47));
  }
  for (const char* family : {"deepseek_v3", "nemotron_h"}) add(Nf4Layouts(family, 8, 97));
  return cases;
}

// The base's bytes are compared, too.
INSTANTIATE_TEST_SUITE_P(Nf4, FrozenLayoutsTest, ::testing::ValuesIn(LayoutsInNf4()), NameOf);

// A weight whose blocks ranks would divide stays as numbers, and the program is refused later.
TEST(Nf4LayoutCases, HaveWholeBlocks) {
  for (const LayoutCase& c : LayoutsInNf4()) {
    const auto plan = PlanRank(c.job, c.model, 0, DeviceKind::kCpu);
    ASSERT_TRUE(plan.ok()) << c.name() << ": " << plan.status();
    EXPECT_TRUE(plan->program.divided_blocks.empty()) << c.name();
  }
}

}  // namespace
}  // namespace trainyard::testing
