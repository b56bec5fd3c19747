// The learning rate of a step: warm-up, then cosine, linear or constant. A pure function.

#pragma once

#include <cstdint>

#include "train/config/job_config.h"

namespace trainyard {

// With peak rate p, final rate m = p * MinRatio, w warm-up steps and n steps in all, 1 <= step <=
// n:
//
//   step <= w   p * step / w
//   constant    p
//   linear      p + (m - p) * (step - w) / (n - w)
//   cosine      m + (p - m) * (1 + cos(pi * (step - w) / (n - w))) / 2
//
// The last step has the final rate.
double LearningRate(const OptimizerConfig& optimizer, int64_t step, int64_t num_steps);

}  // namespace trainyard
