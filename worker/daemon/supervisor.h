// The small process between a worker daemon and one trainer: `trainyard-worker --supervise DIR`.
// The supervisor outlives a daemon that crashes. The supervisor ends after its trainer, and leaves
// no process that the trainer started. worker/daemon/rank_directory.h lists the files that daemon
// and supervisor exchange.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainyard {

// The time from SIGTERM to SIGKILL.
constexpr absl::Duration kKillGrace = absl::Seconds(5);

// Starts the trainer that `directory`/launch.json names, and copies the trainer's output to the
// rotated log. Returns once the trainer and all its descendants are gone and exit_report.json is
// written. Passes SIGTERM on to the trainer, and kills everything kKillGrace later. If this process
// is killed, the trainer dies, too. Must run on the main thread of a process that has no other
// thread. An error means that the report could not be written.
absl::Status Supervise(const std::string& directory);

}  // namespace trainyard
