#include "worker/daemon/liveness.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// Far longer than the time between two calls. A longer time is a pause of the caller.
constexpr absl::Duration kLongestElapsed = absl::Seconds(1);

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

}  // namespace

void Liveness::Heard(const channel::Progress& progress) {
  if (!heard_ || progress.count != last_.count) stuck_ = absl::ZeroDuration();
  silent_ = absl::ZeroDuration();
  heard_ = true;
  last_ = progress;
}

std::optional<std::string> Liveness::Poll(absl::Duration elapsed) {
  stuck_ += std::min(elapsed, kLongestElapsed);
  silent_ += std::min(elapsed, kLongestElapsed);
  const bool stands_still = heard_ && silent_ >= patience_.Silence();
  // A rank that waits for another rank is not ended. The other rank's daemon ends that one.
  const bool hangs = !last_.waiting && stuck_ >= patience_.Of(last_.phase);
  if (!stands_still && !hangs) return std::nullopt;
  std::string reason = absl::StrCat("no progress for ", Seconds(stuck_), " in ");
  if (last_.step > 0) absl::StrAppend(&reason, "step ", last_.step, ", ");
  absl::StrAppend(&reason, "phase ", last_.phase);
  if (stands_still) {
    absl::StrAppend(&reason, "; no heartbeat for ", Seconds(silent_), ": the process stands still");
  }
  return reason;
}

}  // namespace trainyard
