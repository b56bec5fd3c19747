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
  // The files that the job reads, as its earliest attempt recorded them. If no attempt has, the
  // caller sets this attempt's.
  std::optional<RecordedInputs> inputs;
  // ContinueFrom sets the rest.
  Lineage lineage;  // This attempt's, at its beginning.
  // The attempts that this one continues and that the controller may not know of; oldest first.
  std::vector<AttemptStart> earlier_starts;
  // The controller has the steps of the lineage up to this one, each from the attempt that ran it.
  int64_t history_after = 0;
};

// Claims the directory that the job names, begins the attempt in it, and lists the lineage's
// checkpoints. Errors:
// - IsStorageFault: the file system is full. Or earlier attempts have used the directory, as
//   `rank.claimed` or `rank.recorded_step` say, and now it is missing, empty, unreadable or has no
//   owner file.
// - In a first attempt, those of ClaimDirectory.
absl::StatusOr<StartPoint> BeginAttempt(const std::string& directory, const RankConfig& rank,
                                        const Roots& roots, Storage& storage = LocalStorage());

// Writes down which checkpoint the attempt continues, or else the one that it began with, and
// start.inputs if they are this attempt's. Call this before the attempt saves anything.
absl::Status ContinueFrom(const std::optional<Continued>& continued, const RankConfig& rank,
                          StartPoint& start, Storage& storage = LocalStorage(),
                          const std::optional<InitialisedFrom>& initialised_from = std::nullopt);

}  // namespace trainyard
