// A clock that is passed by reference, so that tests can control it. Wall time is for people.
// Leases and deadlines use the monotonic reading.

#pragma once

#include "absl/time/time.h"
#include "common/mutex.h"

namespace trainyard {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;            // Wall clock; may jump.
  virtual absl::Duration Monotonic() const = 0;  // Since an arbitrary start; never goes back.
};

const Clock& RealClock();

// Thread-safe. The clock stands still until a test moves it.
class FakeClock final : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
  void Advance(absl::Duration by);   // Moves both readings.
  void JumpWall(absl::Duration by);  // Moves the wall clock alone.

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
