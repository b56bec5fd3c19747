// The communication of a rank with its peers. Its amount in one optimizer step is a formula, for
// the planner and for the test that counts it. Its pairs of ranks are connected before the first
// step.

#pragma once

#include <map>

#include "kernels/collective/collective.h"
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

// Returns, for each group of the program's rank, that of the pipeline stages included, the pairs of
// ranks of the group along which this rank sends and receives in steps and validations. Both ranks
// of a pair find it.
std::map<Group, Connections> ConnectionsOf(const Program& program,
                                           const PipelineSchedule& schedule);

}  // namespace trainyard
