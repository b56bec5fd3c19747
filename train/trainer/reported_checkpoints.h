// What rank 0 reports of the checkpoints in its job's directory: at most so many that a line of the
// local socket holds them.

#pragma once

#include <string>
#include <vector>

#include "common/rank_records.h"
#include "train/checkpoint/save.h"

namespace trainyard {

// The checkpoints that an attempt could load, newest first.
std::vector<LoadableCheckpoint> ReportLoadable(const std::string& directory);

// Removes the checkpoints that need not be kept. Returns those that are left, newest first. Logs an
// error of removing.
std::vector<CheckpointId> RetainAndReport(const std::string& directory, const Retention& retention);

}  // namespace trainyard
