// The content of a rank's heartbeats: how far its work has come, and whether it waits for its
// peers. The channel's thread asks at its own pace. Only finished work changes the answer.

#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/collective/activity.h"
#include "worker/channel/messages.h"

namespace trainyard {

// Thread-safe.
class Heartbeat {
 public:
  // `activity` must outlive this object; the rank's world counts its operations in it. A rank
  // inside an operation among ranks waits for its peers. A rank that hangs in its own work is soon
  // in no operation, whatever its communication thread did: the operations that it has entered end
  // once its peers have entered them, too.
  explicit Heartbeat(const GroupActivity& activity) : activity_(activity) {}

  // A piece of work is done. The next piece belongs to `phase`, whose text must live for ever.
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
