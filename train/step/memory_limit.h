// Whether a rank's planned memory is there, and what would make it less.

#pragma once

#include "absl/status/status.h"
#include "models/arch/config.h"
#include "models/program/plan.h"
#include "train/config/job_config.h"

namespace trainyard {

// FAILED_PRECONDITION where the plan is beyond `limit_bytes`: what is wanted for what, what was
// found, and the fields of the job that change it.
absl::Status CheckMemory(const MemoryPlan& plan, size_t limit_bytes, const JobConfig& job,
                         const ModelConfig& model);

}  // namespace trainyard
