// What the state after a step says to people.

#pragma once

#include "common/step_numbers.h"
#include "kernels/device/step_state.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// Sets the losses, the norm and the rewards. `state` has the sums of the whole job.
void RecordState(const StepState& state, const JobConfig& job, const ModelConfig& model,
                 StepNumbers& numbers);

}  // namespace trainyard
