// The learning rate of a step: warm-up, then cosine, linear or constant.

#pragma once

#include <cstdint>

#include "train/config/job_config.h"

namespace trainyard {

// Let p be the peak rate, m = p * MinRatio the final rate, w the number of warm-up steps and n that
// of all steps. For 1 <= step <= n, the rate is
//
//   step <= w   p * step / w
//   constant    p
//   linear      p + (m - p) * (step - w) / (n - w)
//   cosine      m + (p - m) * (1 + cos(pi * (step - w) / (n - w))) / 2
//
// The last step has the final rate. A pure function.
double LearningRate(const OptimizerConfig& optimizer, int64_t step, int64_t num_steps);

}  // namespace trainyard
