// The learning rate of a step: warm-up, then cosine, linear, constant or constant with a decay at
// the end.

#pragma once

#include <cstdint>

#include "train/config/job_config.h"

namespace trainyard {

// Let p be the peak rate, m = p * MinRatio the final rate, w the number of warm-up steps, d that of
// decay steps and n that of all steps. For 1 <= step <= n, the rate is
//
//   step <= w   p * step / w
//   constant    p
//   linear      p + (m - p) * (step - w) / (n - w)
//   cosine      m + (p - m) * (1 + cos(pi * (step - w) / (n - w))) / 2
//   wsd         p up to step n - d, and then m + (p - m) * c(x) with x = (step - (n - d)) / d
//
//   c(x) is 1 - x for LINEAR, (1 + cos(pi x)) / 2 for COSINE, 2 * 0.5^x - 1 for EXPONENTIAL and
//   1 - sqrt(x) for MINUS_SQRT. Source of wsd: Hu et al. 2024, arXiv:2404.06395, section 4; its
//   styles are those of Megatron-LM.
//
// The last step has the final rate. A pure function.
double LearningRate(const OptimizerConfig& optimizer, int64_t step, int64_t num_steps);

}  // namespace trainyard
