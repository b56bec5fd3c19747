// Where a rank stood among its peers when it could not go on: the last operations of its groups, in
// its log. Ranks that stand at different numbers of one group have diverged.

#pragma once

#include "kernels/collective/activity.h"
#include "worker/channel/messages.h"

namespace trainyard {

// One line an operation, oldest first, for each group that has one under way or failed in it.
void LogFlight(const GroupActivity& activity);

// Notices that a rank which was told to stop (SIGTERM, held back for StopSignals) does not come to
// see it, and logs where it stands, before it is killed. Not thread-safe.
class StopWatcher {
 public:
  explicit StopWatcher(const GroupActivity& activity) : activity_(activity) {}

  // To be called about every second, with what the rank is at.
  void Beat(const channel::Progress& progress);

 private:
  const GroupActivity& activity_;
  int beats_ = 0;  // For which the signal has been pending.
};

}  // namespace trainyard
