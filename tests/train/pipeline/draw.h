// Pictures of pipeline schedules for the documentation.

#pragma once

#include <string>

#include "train/pipeline/schedule.h"

namespace trainyard::testing {

// An SVG file: a row for each stage, time to the right, forward and the halves of backward taking
// one unit each for all of a stage's chunks together, messages none. Boxes bear their micro-batch.
std::string DrawSchedule(const PipelineSchedule& schedule);

}  // namespace trainyard::testing
