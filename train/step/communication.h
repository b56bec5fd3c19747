// What a rank does among its peers in one optimizer step, as a formula: for the planner, and for
// the test that counts it.

#pragma once

#include "models/program/communication.h"
#include "models/program/program.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Of the program's rank and its stage of the schedule, by group and operation: calls, and the bytes
// that it sends in them. All of a StepRunner's step that follows another: the first gathers, under
// ZeRO FULL, its first block itself, and so may one that follows a validation. The ranks' agreement
// after a step, one all-reduce of two flags and a number a rank among all, comes in addition.
CommunicationTable StepCommunication(const Program& program, const PipelineSchedule& schedule);

}  // namespace trainyard
