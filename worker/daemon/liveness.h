// Decides from a rank's heartbeats (docs/formats.md, `progress`) whether the rank still makes
// progress.

#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "worker/channel/messages.h"
#include "worker/channel/patience.h"

namespace trainyard {

// Not thread-safe. Counts only the time in which the caller could have received a heartbeat, not
// the time of the clock. So if the daemon or the machine was stopped for an hour, no rank counts as
// hung afterwards.
class Liveness {
 public:
  explicit Liveness(channel::Patience patience) : patience_(patience) {}

  void Heard(const channel::Progress& progress);
  // `elapsed`: the time since the last call. Returns why the rank must be ended, if it must: "no
  // progress for 10m in step 12, phase data".
  std::optional<std::string> Poll(absl::Duration elapsed);

 private:
  const channel::Patience patience_;
  channel::Progress last_{.phase = "starting"};
  bool heard_ = false;
  absl::Duration silent_;  // Since the last heartbeat.
  absl::Duration stuck_;   // Since the last heartbeat with progress.
};

}  // namespace trainyard
