// A clock that tests move by hand.

#pragma once

#include "common/clock.h"
#include "common/mutex.h"

namespace trainyard {

// Thread-safe. Stands still until a test moves the clock.
class FakeClock final : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }
  absl::Duration Monotonic() const override {
    MutexLock lock(mutex_);
    return monotonic_;
  }
  // Moves both readings.
  void Advance(absl::Duration by) {
    MutexLock lock(mutex_);
    now_ += by;
    monotonic_ += by;
  }
  // Moves the wall clock alone.
  void JumpWall(absl::Duration by) {
    MutexLock lock(mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
