// What a person sees of a running job: one line a step.

#pragma once

#include <cstdint>
#include <string>

#include "train/step/trainer.h"

namespace trainyard {

// "step 12/200 | loss 2.3456 | grad norm 0.812 | lr 3.00e-04 | 81920 tokens/s | MFU 41.2% |
// train_step_timing in s: 0.401 | eta 1m15s": the last but one is the text by which parsers of
// NeMo's logs find a step's time. `mean_seconds`: of the steps so far, for the estimate.
std::string ProgressLine(const StepRecord& record, int64_t num_steps, double mean_seconds);

}  // namespace trainyard
