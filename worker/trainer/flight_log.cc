#include "worker/trainer/flight_log.h"

#include <signal.h>

#include <algorithm>

#include "common/log.h"

namespace trainyard {
namespace {

// Operations to log for each group: the unfinished one, and enough before it to compare ranks.
constexpr size_t kOperations = 8;

// Beats until the log is written. A step of a small model ends sooner, and a worker kills after
// five seconds.
constexpr int kPatientBeats = 2;

}  // namespace

void LogFlight(const GroupActivity& activity) {
  for (const auto& group : activity.groups()) {
    const std::vector<FlightRecord> records = group->Records();
    const auto stuck = std::find_if(records.begin(), records.end(), [](const FlightRecord& r) {
      return r.left == absl::InfiniteFuture();
    });
    if (stuck == records.end()) continue;
    // On a device, further operations may be queued behind the unfinished one.
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
