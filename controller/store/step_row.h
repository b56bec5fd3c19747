// A step's record as a row of the table `steps`. Numbers that came after this table share the one
// column `numbers`, as a JSON object, so that another number of a step changes no schema.

#pragma once

#include <cstdint>
#include <string>

#include "controller/jobs/step_record.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

// SQL whose parameters BindStep() binds.
std::string InsertStep();
void BindStep(Statement& insert, uint64_t job, const StepRecord& record);

// The beginning of an SQL query whose rows StepOf() reads.
std::string SelectSteps();
// DATA_LOSS: the row of this job has the wrong checksum.
absl::StatusOr<StepRecord> StepOf(const Statement& row, uint64_t job);

}  // namespace trainyard::controller
