#include "worker/trainer/flight_log.h"

#include <signal.h>

#include <algorithm>

#include "common/log.h"

namespace trainyard {
namespace {

// Of each group: what it was at, and enough of what came before to compare ranks by.
constexpr size_t kOperations = 8;

// A step of a small model sees the signal sooner; a worker kills after five seconds.
constexpr int kPatientBeats = 2;

}  // namespace

void LogFlight(const GroupActivity& activity) {
  for (const auto& group : activity.groups()) {
    const std::vector<FlightRecord> records = group->Records();
    const auto stuck = std::find_if(records.begin(), records.end(), [](const FlightRecord& r) {
      return r.left == absl::InfiniteFuture();
    });
    if (stuck == records.end()) continue;
    // On a device, others may have been given behind it.
    const size_t at = size_t(stuck - records.begin());
    const size_t end = std::min(records.size(), at + kOperations / 2);
    for (size_t i = end - std::min(end, kOperations); i < end; ++i) {
      LogWarning("collective", {{"group", group->group()}, {"operation", ToString(records[i])}});
    }
  }
}

void StopWatcher::Beat(const channel::Progress& progress) {
  sigset_t pending;
  if (::sigpending(&pending) != 0 || ::sigismember(&pending, SIGTERM) != 1) {
    beats_ = 0;
    return;
  }
  if (++beats_ != kPatientBeats) return;
  LogWarning("not_stopped_yet", {{"phase", progress.phase},
                                 {"step", progress.step},
                                 {"in_collective", progress.waiting ? "yes" : "no"}});
  LogFlight(activity_);
}

}  // namespace trainyard
