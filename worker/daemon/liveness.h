// Whether a rank that runs still gets on, by its heartbeats (docs/formats.md, `progress`).

#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "worker/channel/messages.h"
#include "worker/channel/patience.h"

namespace trainyard {

// Not thread-safe. Counts the time in which its owner could have heard something, not the clock's:
// a daemon, or a machine, that was itself stopped for an hour finds nobody hung.
class Liveness {
 public:
  explicit Liveness(channel::Patience patience) : patience_(patience) {}

  void Heard(const channel::Progress& progress);
  // `elapsed`: since the last call. Why the rank has to be ended, once it has: "no progress for
  // 10m in step 12, phase data".
  std::optional<std::string> Poll(absl::Duration elapsed);

 private:
  const channel::Patience patience_;
  channel::Progress last_{.phase = "starting"};
  bool heard_ = false;
  absl::Duration silent_;  // Since the last heartbeat,
  absl::Duration stuck_;   // since the last one that told of progress.
};

}  // namespace trainyard
