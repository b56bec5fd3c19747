#include "common/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace trainyard {
namespace {

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Monotonic() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

const Clock& RealClock() {
  static const SystemClock clock;
  return clock;
}

absl::Time FakeClock::Now() const {
  MutexLock lock(mutex_);
  return now_;
}

absl::Duration FakeClock::Monotonic() const {
  MutexLock lock(mutex_);
  return monotonic_;
}

void FakeClock::Advance(absl::Duration by) {
  MutexLock lock(mutex_);
  now_ += by;
  monotonic_ += by;
}

void FakeClock::JumpWall(absl::Duration by) {
  MutexLock lock(mutex_);
  now_ += by;
}

}  // namespace trainyard
