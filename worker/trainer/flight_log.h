// Logs the last operations of a rank's groups when the rank cannot continue. If ranks stand at
// different operation numbers of one group, they have diverged.

#pragma once

#include "kernels/collective/activity.h"
#include "worker/channel/messages.h"

namespace trainyard {

// Logs one line for each operation, oldest first, for each group with an operation that is
// unfinished or has failed.
void LogFlight(const GroupActivity& activity);

// Notices that a rank has not reacted to SIGTERM (which is blocked for StopSignals), and logs where
// the rank stands before it is killed. Not thread-safe.
class StopWatcher {
 public:
  explicit StopWatcher(const GroupActivity& activity) : activity_(activity) {}

  // Call this about every second with the rank's progress.
  void Beat(const channel::Progress& progress);

 private:
  const GroupActivity& activity_;
  int beats_ = 0;  // Beats for which the signal has been pending.
};

}  // namespace trainyard
