// Checks that a pipeline schedule can run and computes the right gradients.

#pragma once

#include "absl/status/status.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Returns OK if the schedule has all properties that are listed at PipelineSchedule. Otherwise the
// error has the first violation: stage, action, what was wanted, what was found.
absl::Status CheckSchedule(const PipelineSchedule& schedule);

}  // namespace trainyard
