// What a rank's heartbeats say: how far its work has come, and whether it waits for its peers. The
// channel's thread asks at its own pace; only work makes the answer change.

#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/collective/activity.h"
#include "worker/channel/messages.h"

namespace trainyard {

// Thread-safe.
class Heartbeat {
 public:
  // `activity`, for the world to count in, outlives this. In an operation among ranks a rank waits
  // for its peers: one that hangs in work of its own is soon in none, whatever its communication
  // thread was at, because what it has entered ends once its peers have entered it, too.
  explicit Heartbeat(const GroupActivity& activity) : activity_(activity) {}

  // A piece of work is done; the next is of this phase. `phase` must live for ever.
  void Advance(const char* phase, int64_t step) {
    phase_ = phase;
    step_ = step;
    ++count_;
  }

  channel::Progress Now() const {
    return {.phase = phase_.load(),
            .step = uint64_t(step_.load()),
            .count = count_ + activity_.done,
            .waiting = activity_.under_way > 0};
  }

 private:
  const GroupActivity& activity_;
  std::atomic<const char*> phase_ = "starting";
  std::atomic<int64_t> step_ = 0;
  std::atomic<uint64_t> count_ = 0;
};

}  // namespace trainyard
