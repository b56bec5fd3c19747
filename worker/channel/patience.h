// How long a rank may go without progress. One number, the worker's `--patience`, from which the
// daemon that ends a rank which hangs, and the ranks that wait for it, derive theirs: the daemon
// must act first, because it knows which rank it is.

#pragma once

#include <algorithm>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::channel {

// A rank outlives its daemon for so long: an upgrade of the daemon may take that time.
inline constexpr absl::Duration kDetach = absl::Minutes(10);

inline constexpr absl::Duration kBeat = absl::Seconds(1);  // Between a rank's heartbeats.

class Patience {
 public:
  // `step`: from one piece of work of a step (a batch, a micro-batch, an operation among ranks) to
  // the next.
  explicit Patience(absl::Duration step = absl::Minutes(10)) : step_(step) {}

  absl::Duration step() const { return step_; }
  // Starting (data, memory, the checkpoint to load) and checkpoints are pieces of work as a whole.
  absl::Duration Of(absl::string_view phase) const {
    return phase == "starting" || phase == "checkpoint" ? 3 * step_ : step_;
  }
  // Without any heartbeat: the whole process stands still, whatever it was at.
  // However short, several heartbeats must be missing: one that is late says that a core is busy.
  absl::Duration Silence() const { return std::max(step_ / 10, 5 * kBeat); }
  // Of one operation among ranks: longer than a peer may take for anything, and than its end takes.
  absl::Duration ForPeers() const { return 3 * step_ + absl::Minutes(1); }

 private:
  absl::Duration step_;
};

}  // namespace trainyard::channel
