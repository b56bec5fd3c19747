// Where an attempt begins: rank 0 makes the job's checkpoint directory its own, and chooses what
// the gang loads from it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/storage.h"
#include "train/config/trainer_config.h"

namespace trainyard {

struct StartPoint {
  std::string directory;             // Canonical.
  std::string checkpoint;            // The path of what is to be loaded; empty: there is nothing.
  std::vector<std::string> refused;  // Why newer ones were not chosen.
  Lineage lineage;                   // Of this attempt, as it begins.
  // Attempts that this one builds on, of which nobody may have told the controller; oldest first.
  std::vector<AttemptStart> earlier_starts;
  // The controller has the steps of the lineage up to here, each from the attempt that ran it.
  int64_t history_after = 0;
};

// Claims the directory that the job names, begins the attempt in it, chooses the newest good
// checkpoint of the lineage, and writes down that the attempt continues it. Errors: those of
// ClaimDirectory, of a first attempt; INTERNAL with every reason where checkpoints are loadable and
// none is good, since another host may read them; an error for which IsStorageFault holds where a
// checkpoint could not be read, or where `rank.claimed` or `rank.recorded_step` say
// that earlier attempts have used the directory, and it is not there, empty, unreadable or without
// its owner's file.
absl::StatusOr<StartPoint> BeginAttempt(const std::string& directory, const RankConfig& rank,
                                        const Roots& roots, Storage& storage = LocalStorage());

}  // namespace trainyard
