// The communication of a rank with its peers in one optimizer step, by formula: for the planner,
// and for the test that counts it.

#pragma once

#include "models/program/communication.h"
#include "models/program/program.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Returns the calls and the bytes sent, by group and operation, of the program's rank in one step
// of a StepRunner. The step must follow another step: under ZeRO FULL the first step, and possibly
// a step after a validation, also gathers its own first block. Does not include the ranks'
// agreement after the step, one all-reduce among all ranks of three flags and a number for each
// rank.
CommunicationTable StepCommunication(const Program& program, const PipelineSchedule& schedule);

}  // namespace trainyard
