// Whether a pipeline schedule can run and computes the right gradients.

#pragma once

#include "absl/status/status.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// OK if everything holds that is listed at PipelineSchedule; otherwise the first thing that does
// not: stage, action, what was wanted, what was found.
absl::Status CheckSchedule(const PipelineSchedule& schedule);

}  // namespace trainyard
