#include "controller/workers/ticker.h"

namespace trainyard::controller {

void Ticker::Start(absl::Duration every, std::function<void()> tick) {
  thread_ = std::thread([this, every = absl::ToChronoMilliseconds(every), tick = std::move(tick)] {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, every, [&] { return woken_ || stopping_; });
        if (stopping_) return;
        woken_ = false;
      }
      tick();
    }
  });
}

void Ticker::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Ticker::Wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

}  // namespace trainyard::controller
