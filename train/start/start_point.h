// Finds where an attempt begins. Rank 0 claims the job's checkpoint directory, lists the
// checkpoints that may be loaded, and writes down which one the gang has loaded.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/storage.h"
#include "train/config/trainer_config.h"

namespace trainyard {

struct StartPoint {
  std::string directory;                // Canonical.
  std::vector<std::string> candidates;  // Paths of the loadable checkpoints, newest first.
  // The files that the run has read so far. The caller replaces them by this attempt's.
  std::optional<RecordedInputs> inputs;
  int64_t after_epoch = 0;  // Attempts up to this one are those of jobs that the job continues.
  std::string job;          // What the attempt trains (recorded_job.h). The caller sets it.
  // ContinueFrom sets the rest.
  Lineage lineage;  // This attempt's, at its beginning.
  // The attempts that this one continues and that the controller may not know of; oldest first.
  std::vector<AttemptStart> earlier_starts;
  // The controller has the steps of the lineage up to this one, each from the attempt that ran it.
  int64_t history_after = 0;
};

// Claims the directory that the job names, begins the attempt in it, and lists the lineage's
// checkpoints. With `continues`, the directory passes to this job from the one that it names.
// Errors:
// - IsStorageFault: the file system is full. Or earlier attempts have used the directory, as
//   `rank.claimed` or `rank.recorded_step` say, and now it is missing, empty, unreadable or has no
//   owner file.
// - In a first attempt, those of ClaimDirectory.
absl::StatusOr<StartPoint> BeginAttempt(
    const std::string& directory, const RankConfig& rank, const Roots& roots,
    Storage& storage = LocalStorage(),
    const std::optional<ContinuesConfig>& continues = std::nullopt);

// Lists the same for a job that continues a run, before the job claims the directory. Changes
// nothing. FAILED_PRECONDITION: there is no checkpoint. NOT_FOUND: there is no directory.
absl::StatusOr<StartPoint> LookAtRun(const std::string& directory, const RankConfig& rank,
                                     const Roots& roots,
                                     const std::optional<ContinuesConfig>& continues);

// Writes down what the attempt trains, which checkpoint it continues, or else the one that it began
// with, and start.inputs. Call this before the attempt saves anything.
absl::Status ContinueFrom(const std::optional<Continued>& continued, const RankConfig& rank,
                          StartPoint& start, Storage& storage = LocalStorage(),
                          const std::optional<InitialisedFrom>& initialised_from = std::nullopt);

}  // namespace trainyard
