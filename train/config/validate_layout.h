// Whether a job's model and batch can be divided over its ranks as it asks.

#pragma once

#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// The sizes of the axes, and whether they make up the job's devices. Returns whether all are legal,
// so that sizes derived from them mean something.
bool ValidateAxes(const JobConfig& job, Violations& violations);

// Adds a violation for each thing that does not divide, with the nearest size that does (as long as
// the others stay, devices among them). The axes, the batch and the model are legal by themselves.
void ValidateLayout(const JobConfig& job, const ModelConfig& model, Violations& violations);

}  // namespace trainyard
