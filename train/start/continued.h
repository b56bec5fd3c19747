// Whether a job may go on from a checkpoint of another job's run, or of an earlier run alone.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/load.h"
#include "train/config/trainer_config.h"

namespace trainyard {

// Returns the job that wrote the checkpoint, as the directory has recorded it. If an earlier
// release has left no record, or the record is no valid job, which is logged, returns `now` with
// what the manifest says.
absl::StatusOr<JobConfig> JobOfRun(const Checkpoint& checkpoint, const JobConfig& now);

// Compares the job with the one that wrote the checkpoint (train/config/continued_run.h). Logs
// each change that may be. Does nothing if an earlier attempt of this job wrote the checkpoint,
// except in a trainer that runs alone. INVALID_ARGUMENT (violations): a change is refused, or the
// run has done all of the job's steps already.
absl::Status CheckContinued(const Checkpoint& checkpoint, const JobConfig& job,
                            const RankConfig& rank);

}  // namespace trainyard
