// The real clock, moved by a test, for servers that also need real time, as certificates do.

#pragma once

#include <atomic>

#include "common/clock.h"

namespace trainyard::controller {

// Thread-safe.
class MovedClock final : public Clock {
 public:
  absl::Time Now() const override {
    return RealClock().Now() + absl::Seconds(passed_.load() + leapt_.load());
  }
  absl::Duration Monotonic() const override {
    return RealClock().Monotonic() + absl::Seconds(passed_.load());
  }
  void Pass(absl::Duration by) { passed_ += absl::ToInt64Seconds(by); }  // Moves both readings.
  void Leap(absl::Duration by) { leapt_ += absl::ToInt64Seconds(by); }   // The wall clock alone.

 private:
  std::atomic<int64_t> passed_ = 0, leapt_ = 0;  // Seconds.
};

}  // namespace trainyard::controller
