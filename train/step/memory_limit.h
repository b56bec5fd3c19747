// Checks that a device has the memory that a rank's plan needs.

#pragma once

#include "absl/status/status.h"
#include "models/arch/config.h"
#include "models/program/plan.h"
#include "train/config/job_config.h"

namespace trainyard {

// FAILED_PRECONDITION: the plan needs more than `limit_bytes`. The message has the needed bytes and
// their uses, the limit, and the fields of the job that change the need.
absl::Status CheckMemory(const MemoryPlan& plan, size_t limit_bytes, const JobConfig& job,
                         const ModelConfig& model);

}  // namespace trainyard
