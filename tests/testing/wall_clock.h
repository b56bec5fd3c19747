// Moves the wall clock of this process, for tests of what must not depend on it. Link wall_clock.cc
// into the test itself: its clock_gettime then stands before the C library's. What
// a program reads by other functions is the machine's.

#pragma once

#include "absl/time/time.h"

namespace trainyard {

// The wall clock is `by` ahead of the machine's for the object's life; one object at a time.
// Returns from its constructor and destructor once absl::Now has noticed, which can take seconds.
class WallClockJump {
 public:
  explicit WallClockJump(absl::Duration by);
  ~WallClockJump();
  WallClockJump(const WallClockJump&) = delete;
};

}  // namespace trainyard
