// How long a worker pauses before it connects anew: longer after each attempt that failed.

#pragma once

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace trainyard {

// One worker's. Not thread-safe.
class Reconnect {
 public:
  Reconnect(absl::Duration first, absl::Duration longest)
      : first_(first), longest_(longest), whole_(first) {}

  // The pause after an attempt; a worker that was registered begins with the shortest. Between a
  // half and the whole, so that a thousand workers do not come back at once.
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
