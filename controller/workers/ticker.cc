#include "controller/workers/ticker.h"

#include <algorithm>

#include "common/clock.h"

namespace trainyard::controller {
namespace {

// After a tick, the thread rests this many times as long as the tick took, even if it is woken.
// When all workers reconnect at once, they wake it thousands of times, and they need the locks that
// a tick holds.
constexpr int kRest = 4;

}  // namespace

void Ticker::Start(absl::Duration every, std::function<void()> tick) {
  thread_ = std::thread([this, every, tick = std::move(tick)] {
    absl::Duration rested = RealClock().Monotonic();
    for (;;) {
      {
        MutexLock lock(mutex_);
        const absl::Duration next = RealClock().Monotonic() + every;
        while (!stopping_ && changed_.WaitUntil(mutex_, rested)) continue;
        while (!woken_ && !stopping_ && changed_.WaitUntil(mutex_, next)) continue;
        if (stopping_) return;
        woken_ = false;
      }
      const absl::Duration begin = RealClock().Monotonic();
      tick();
      const absl::Duration end = RealClock().Monotonic();
      rested = end + std::min(kRest * (end - begin), every);
    }
  });
}

void Ticker::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void Ticker::Wake() {
  {
    MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.NotifyOne();
}

}  // namespace trainyard::controller
