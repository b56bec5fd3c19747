#include "train/trainer/learning_rate.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace trainyard {

namespace {

// The part of the difference between peak and final rate that is left at x of the decay.
double DecayLeft(DecayStyle style, double x) {
  switch (style) {
    case DecayStyle::kLinear:
      return 1 - x;
    case DecayStyle::kCosine:
      return (1 + std::cos(std::numbers::pi * x)) / 2;
    case DecayStyle::kExponential:
      return 2 * std::pow(0.5, x) - 1;
    case DecayStyle::kMinusSqrt:
      return 1 - std::sqrt(x);
  }
  return 0;
}

}  // namespace

double LearningRate(const OptimizerConfig& optimizer, int64_t step, int64_t num_steps) {
  CHECK(step >= 1 && step <= num_steps) << "step " << step << " of " << num_steps;
  const ScheduleConfig& schedule = optimizer.schedule;
  const double peak = optimizer.options["learning_rate"];
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
    case ScheduleShape::kWsd: {
      const int64_t decayed = step - (num_steps - schedule.decay_steps);
      if (decayed <= 0) return peak;
      const double x = double(decayed) / double(schedule.decay_steps);
      return last + (peak - last) * DecayLeft(schedule.decay_style, x);
    }
  }
  return peak;
}

}  // namespace trainyard
