// What rank 0 reports of the checkpoints in its job's directory: at most so many that a line of the
// local socket holds them.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/rank_records.h"
#include "train/checkpoint/opened.h"
#include "train/checkpoint/save.h"

namespace trainyard {

// All functions open only checkpoints that `opened` has not.

// The checkpoints that an attempt could load, newest first.
std::vector<LoadableCheckpoint> ReportLoadable(const std::string& directory,
                                               OpenedCheckpoints& opened);

// The best of the checkpoints that an attempt could load. Nullopt: none has a validation loss.
std::optional<BestCheckpoint> ReportBest(const std::string& directory, OpenedCheckpoints& opened);

// Removes the checkpoints that need not be kept. Sets `retained` of the record to those that are
// left, newest first, and, with keep_best, `best`. Logs an error of removing.
void RetainAndReport(const std::string& directory, const Retention& retention,
                     OpenedCheckpoints& opened, CheckpointRecord& record);

}  // namespace trainyard
