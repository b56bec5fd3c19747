#include "train/step/schedule.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace trainyard {

double LearningRate(const OptimizerConfig& optimizer, int64_t step, int64_t num_steps) {
  CHECK(step >= 1 && step <= num_steps) << "step " << step << " of " << num_steps;
  const ScheduleConfig& schedule = optimizer.schedule;
  const double peak = optimizer.adamw.learning_rate;
  const double last = peak * MinRatio(schedule);
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return peak * double(step) / double(warmup);
  const double progress = double(step - warmup) / double(num_steps - warmup);
  switch (schedule.shape) {
    case ScheduleShape::kConstant:
      return peak;
    case ScheduleShape::kLinear:
      return peak + (last - peak) * progress;
    case ScheduleShape::kCosine:
      return last + (peak - last) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
  return peak;
}

}  // namespace trainyard
