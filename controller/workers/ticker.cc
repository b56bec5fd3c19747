#include "controller/workers/ticker.h"

#include "common/clock.h"

namespace trainyard::controller {

void Ticker::Start(absl::Duration every, std::function<void()> tick) {
  thread_ = std::thread([this, every, tick = std::move(tick)] {
    for (;;) {
      {
        MutexLock lock(mutex_);
        const absl::Duration next = RealClock().Monotonic() + every;
        while (!woken_ && !stopping_ && changed_.WaitUntil(mutex_, next)) continue;
        if (stopping_) return;
        woken_ = false;
      }
      tick();
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
