// How long a rank may go without progress. One number, the worker's `--patience`, sets two limits:
// that of the daemon, which ends a rank that hangs, and that of the ranks that wait for this rank.
// The daemon's limit is shorter, because the daemon knows which rank hangs.

#pragma once

#include <algorithm>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::channel {

// How long a rank may outlive its daemon. Upgrading the daemon may take this time.
inline constexpr absl::Duration kDetach = absl::Minutes(10);

inline constexpr absl::Duration kBeat = absl::Seconds(1);  // Between a rank's heartbeats.

class Patience {
 public:
  // `step`: the longest time between two pieces of a step's work (a batch, a micro-batch, an
  // operation among ranks).
  explicit Patience(absl::Duration step = absl::Minutes(10)) : step_(step) {}

  absl::Duration step() const { return step_; }
  // Starting (data, memory, loading a checkpoint) and saving a checkpoint are one piece of work
  // each.
  absl::Duration Of(absl::string_view phase) const {
    return phase == "starting" || phase == "checkpoint" ? 3 * step_ : step_;
  }
  // The longest time without any heartbeat. After it, the whole process stands still, whatever its
  // work was. At least several heartbeats must be missing, because a single late one only says that
  // a core is busy.
  absl::Duration Silence() const { return std::max(step_ / 10, 5 * kBeat); }
  // The longest time for one operation among ranks. It is longer than any piece of a peer's work
  // and the time to end that peer.
  absl::Duration ForPeers() const { return 3 * step_ + absl::Minutes(1); }

 private:
  absl::Duration step_;
};

}  // namespace trainyard::channel
