// NCCL's own log of a rank, which a job's profile may ask for.

#pragma once

#include "absl/status/status.h"
#include "train/config/trainer_config.h"

namespace trainyard {

// Whether the job wants it of this rank.
bool WantsNcclTrace(const TrainerConfig& config);

// Where it is wanted, makes the profile's directory and tells NCCL, through the environment, which
// it reads when it is first used, to write there: before that, and before other threads are.
// Errors are of profile.directory, as those of Roots::MakeDirectory.
absl::Status PrepareNcclTrace(const TrainerConfig& config);

}  // namespace trainyard
