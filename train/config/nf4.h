// What NF4 cannot do with a job's model, precision or division among ranks.

#pragma once

#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// For a job whose base is in NF4: adds a violation for a precision that rounds layers to 8 bits,
// and for the first linear layer or expert whose rows are no whole blocks. If the job has no
// violation at all, adds one for each field that divides the blocks of a weight. `model` must be
// valid, or null: then the rules that depend on the model are not checked.
void ValidateNf4(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
