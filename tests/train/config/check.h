// What several tests ask of a job.

#pragma once

#include <vector>

#include "common/violations.h"
#include "train/config/job_config.h"
#include "train/config/validate.h"

namespace trainyard {

// What is wrong with a job.
inline std::vector<FieldViolation> Check(const JobConfig& job) {
  Violations violations;
  Validate(job, violations);
  return violations.list();
}

}  // namespace trainyard
