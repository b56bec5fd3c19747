// Everything that can be seen to be wrong with a job without opening a file: called by the
// controller on submit and by the trainer at start.

#pragma once

#include "common/violations.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr int64_t kMaxSteps = 1'000'000'000;
inline constexpr int64_t kMaxDevices = 65'536;
inline constexpr int64_t kMaxGlobalBatch = 1'000'000;
inline constexpr int64_t kMaxTokensPerStep = int64_t{1} << 40;

// Adds one violation a problem, with the field's path, what was wanted, what was found, and the
// nearest legal value.
void Validate(const JobConfig& job, Violations& violations);

}  // namespace trainyard
