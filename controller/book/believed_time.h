// The wall clock, as far as it is believed. Jobs are numbered and dated by it. A clock that leaps
// is named in the log and not believed until its new time has held for ten minutes. Until then time
// goes on from the earlier readings.

#pragma once

#include <optional>

#include "absl/time/time.h"
#include "common/clock.h"

namespace trainyard::controller {

// Not thread-safe.
class BelievedTime {
 public:
  explicit BelievedTime(const Clock& clock);  // The first reading is believed.
  absl::Time Now();

 private:
  struct Doubt {
    absl::Duration offset;
    absl::Duration since;
  };

  const Clock& clock_;
  absl::Duration offset_;       // Of the believed time to the monotonic reading.
  std::optional<Doubt> doubt_;  // What the clock says instead, and since when.
};

}  // namespace trainyard::controller
