// Writes NCCL's own log of a rank if the job's profile asks for it.

#pragma once

#include "absl/status/status.h"
#include "train/config/trainer_config.h"

namespace trainyard {

// Whether the job asks for the log of this rank.
bool WantsNcclTrace(const TrainerConfig& config);

// If the log is wanted, makes the profile's directory and sets the environment variables by which
// NCCL writes there. NCCL reads them at its first use, so call this before that, and before other
// threads exist. Errors: those of Roots::MakeDirectory, for profile.directory.
absl::Status PrepareNcclTrace(const TrainerConfig& config);

}  // namespace trainyard
