// Proves the learning rate's schedule against values computed by hand.

#include "train/trainer/learning_rate.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <vector>

namespace trainyard {
namespace {

OptimizerConfig Scheduled(ScheduleShape shape, int64_t warmup, std::optional<double> min_ratio) {
  OptimizerConfig optimizer;
  optimizer.options["learning_rate"] = 8;
  optimizer.schedule = {.shape = shape, .warmup_steps = warmup, .min_ratio = min_ratio};
  return optimizer;
}

TEST(LearningRate, WarmsUpLinearlyFromZeroToThePeak) {
  for (const ScheduleShape shape : {ScheduleShape::kConstant, ScheduleShape::kLinear,
                                    ScheduleShape::kCosine, ScheduleShape::kWsd}) {
    OptimizerConfig optimizer = Scheduled(shape, 4, {});
    optimizer.schedule.decay_steps = 16;
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 1, 20), 2);
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 3, 20), 6);
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 4, 20), 8);
  }
}

TEST(LearningRate, CosineFallsFromThePeakToTheFinalRate) {
  const OptimizerConfig optimizer = Scheduled(ScheduleShape::kCosine, 4, 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 12, 20), 5);  // Halfway between 8 and 2.
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 8, 20), 2 + 3 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 20, 20), 2);
}

TEST(LearningRate, LinearFallsEvenlyToATenthUnlessToldOtherwise) {
  const OptimizerConfig optimizer = Scheduled(ScheduleShape::kLinear, 0, {});
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 5, 10), 4.4);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 10, 10), 0.8);
}

TEST(LearningRate, ConstantStays) {
  const OptimizerConfig optimizer = Scheduled(ScheduleShape::kConstant, 1, {});
  EXPECT_EQ(LearningRate(optimizer, 2, 1000), 8);
  EXPECT_EQ(LearningRate(optimizer, 1000, 1000), 8);
}

// Warm-up to step 2, the peak 8 to step 6, and then down to 2 in steps 7 to 10.
TEST(LearningRate, WarmUpStableDecayFallsInTheLastStepsByItsStyle) {
  OptimizerConfig optimizer = Scheduled(ScheduleShape::kWsd, 2, 0.25);
  optimizer.schedule.decay_steps = 4;
  const double root = std::sqrt(0.5);
  const std::map<DecayStyle, std::vector<double>> wanted = {
      {DecayStyle::kLinear, {6.5, 5, 3.5, 2}},
      {DecayStyle::kCosine, {2 + 3 * (1 + root), 5, 2 + 3 * (1 - root), 2}},
      {DecayStyle::kExponential,
       {2 + 6 * (2 * std::sqrt(root) - 1), 2 + 6 * (2 * root - 1),
        2 + 6 * (2 * root * std::sqrt(root) - 1), 2}},
      {DecayStyle::kMinusSqrt, {5, 2 + 6 * (1 - root), 2 + 6 * (1 - std::sqrt(0.75)), 2}}};
  for (const auto& [style, rates] : wanted) {
    optimizer.schedule.decay_style = style;
    for (int64_t step = 2; step <= 6; ++step) {
      EXPECT_EQ(LearningRate(optimizer, step, 10), 8) << step;
    }
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_DOUBLE_EQ(LearningRate(optimizer, 7 + i, 10), rates[size_t(i)])
          << int(style) << ", step " << 7 + i;
    }
  }
}

TEST(LearningRate, RunThatIsAllWarmUpNeverReachesTheDecay) {
  const OptimizerConfig optimizer = Scheduled(ScheduleShape::kCosine, 40, 0.0);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 10, 10), 2);
}

}  // namespace
}  // namespace trainyard
