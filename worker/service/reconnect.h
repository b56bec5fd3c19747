// How long a worker pauses before it reconnects. The pause grows with each failed attempt.

#pragma once

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace trainyard {

// For one worker. Not thread-safe.
class Reconnect {
 public:
  Reconnect(absl::Duration first, absl::Duration longest)
      : first_(first), longest_(longest), whole_(first) {}

  // Returns the pause after an attempt. After an attempt that registered the worker, the pause is
  // the shortest again. The pause is random between half and all of the time, so that a thousand
  // workers do not come back at once.
  absl::Duration After(bool registered) {
    whole_ = registered ? first_ : std::min(2 * whole_, longest_);
    return std::uniform_real_distribution<double>(0.5, 1.0)(random_) * whole_;
  }

 private:
  const absl::Duration first_, longest_;
  absl::Duration whole_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace trainyard
