// Proves, before a job's first step, that the work of a rank is in order: of any two accesses to
// the same memory, one of them a write, one comes before the other, however fast streams and
// messages run.

#pragma once

#include "absl/status/status.h"
#include "kernels/device/exec.h"
#include "models/program/plan.h"
#include "models/program/program.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Runs the engine and the schedule of one rank as they are (Executable, StepRunner), but on a
// device that computes nothing and notes what is read and written (kernels/order/backend.h). Runs
// the start, several steps, validation and the reads of a checkpoint. Needs neither devices nor
// other ranks, and takes less time than a step.
//
// The arguments are those with which the rank trains. INTERNAL: two accesses that nothing orders;
// the message names both, and the memory.
absl::Status CheckOrder(const Program& program, const MemoryPlan& plan,
                        const PipelineSchedule& schedule, DeviceKind device);

}  // namespace trainyard
