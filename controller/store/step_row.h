// A step's record as a row of the table `steps`. Numbers and phases that are newer than the table
// are in one column, `numbers`, as a JSON object, and so is what the model wrote. So a new one does
// not change the schema.

#pragma once

#include <cstdint>
#include <string>

#include "controller/jobs/step_record.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

// An SQL statement whose parameters BindStep() binds.
std::string InsertStep();
void BindStep(Statement& insert, uint64_t job, const JobStep& record);

// The beginning of an SQL query whose rows StepOf() reads.
std::string SelectSteps();
// DATA_LOSS: the row of this job has the wrong checksum.
absl::StatusOr<JobStep> StepOf(const Statement& row, uint64_t job);

}  // namespace trainyard::controller
