// What a person sees of a running job: one line for each step.

#pragma once

#include <cstdint>
#include <string>

#include "train/trainer/trainer.h"

namespace trainyard {

// Returns "step 12/200 | loss 2.3456 | grad norm 0.812 | lr 3.00e-04 | 81920 tokens/s | MFU 41.2% |
// train_step_timing in s: 0.401 | eta 1m15s". Programs that parse the logs of NeMo find a step's
// time by the text "train_step_timing in s:". `mean_seconds`: the mean time of the steps so far,
// for the estimate.
std::string ProgressLine(const StepRecord& record, int64_t num_steps, double mean_seconds);

}  // namespace trainyard
