// A clock that is passed by reference, so that tests can control it. Wall time is for people.
// Leases and deadlines use the monotonic reading.

#pragma once

#include "absl/time/time.h"

namespace trainyard {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;            // Wall clock; may jump.
  virtual absl::Duration Monotonic() const = 0;  // Since an arbitrary start; never goes back.
};

const Clock& RealClock();

}  // namespace trainyard
