// The small process between a worker daemon and one trainer: `trainyard-worker --supervise DIR`. It
// outlives a daemon that crashes, never its trainer, and leaves behind no process that the trainer
// started. worker/daemon/rank_directory.h says which files the two exchange.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainyard {

// From SIGTERM to SIGKILL.
constexpr absl::Duration kKillGrace = absl::Seconds(5);

// Starts the trainer that `directory`/launch.json names, copies its output to the rotated log, and
// returns once it and all its descendants are gone and exit_report.json is written. SIGTERM is
// passed on; kKillGrace later everything is killed. If this process is killed, the trainer dies
// with it. Must be the main thread of a process that has no other. An error means that the report
// could not be written.
absl::Status Supervise(const std::string& directory);

}  // namespace trainyard
