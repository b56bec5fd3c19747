// Proves the learning rate's schedule against values computed by hand.

#include "train/step/schedule.h"

#include <gmock/gmock.h>

#include <cmath>

namespace trainyard {
namespace {

OptimizerConfig Optimizer(ScheduleShape shape, int64_t warmup, std::optional<double> min_ratio) {
  OptimizerConfig optimizer;
  optimizer.adamw.learning_rate = 8;
  optimizer.schedule = {.shape = shape, .warmup_steps = warmup, .min_ratio = min_ratio};
  return optimizer;
}

TEST(LearningRate, WarmsUpLinearlyFromZeroToThePeak) {
  for (const ScheduleShape shape :
       {ScheduleShape::kConstant, ScheduleShape::kLinear, ScheduleShape::kCosine}) {
    const OptimizerConfig optimizer = Optimizer(shape, 4, {});
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 1, 20), 2);
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 3, 20), 6);
    EXPECT_DOUBLE_EQ(LearningRate(optimizer, 4, 20), 8);
  }
}

TEST(LearningRate, CosineFallsFromThePeakToTheFinalRate) {
  const OptimizerConfig optimizer = Optimizer(ScheduleShape::kCosine, 4, 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 12, 20), 5);  // Halfway between 8 and 2.
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 8, 20), 2 + 3 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 20, 20), 2);
}

TEST(LearningRate, LinearFallsEvenlyToATenthUnlessToldOtherwise) {
  const OptimizerConfig optimizer = Optimizer(ScheduleShape::kLinear, 0, {});
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 5, 10), 4.4);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 10, 10), 0.8);
}

TEST(LearningRate, ConstantStays) {
  const OptimizerConfig optimizer = Optimizer(ScheduleShape::kConstant, 1, {});
  EXPECT_EQ(LearningRate(optimizer, 2, 1000), 8);
  EXPECT_EQ(LearningRate(optimizer, 1000, 1000), 8);
}

TEST(LearningRate, RunThatIsAllWarmUpNeverReachesTheDecay) {
  const OptimizerConfig optimizer = Optimizer(ScheduleShape::kCosine, 40, 0.0);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 10, 10), 2);
}

}  // namespace
}  // namespace trainyard
