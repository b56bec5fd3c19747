// The wall clock, as far as it is believed. Jobs are numbered and dated by it, and grants end by
// it. A clock that leaps is named in the log and not believed until its new time has held for ten
// minutes. Until then time goes on from the earlier readings, also while the machine sleeps.

#pragma once

#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace trainyard::controller {

// How long this machine has slept since it started. The monotonic reading leaves this time out.
absl::Duration TimeAsleep();

// Thread-safe. Somebody must call Now every few seconds, because a leap is noticed, and the new
// time is seen to hold, only then.
class BelievedTime final : public Clock {
 public:
  // The first reading is believed. `clock` outlives the object.
  explicit BelievedTime(const Clock& clock, std::function<absl::Duration()> asleep = TimeAsleep);

  absl::Time Now() const override;
  absl::Duration Monotonic() const override { return clock_.Monotonic(); }
  // The clock as it is, for what another clock has dated a moment ago, as issuers' tokens.
  const Clock& raw() const { return clock_; }

 private:
  struct Doubt {
    absl::Duration offset;
    absl::Duration since;
  };

  absl::Duration Elapsed() const { return clock_.Monotonic() + asleep_(); }

  const Clock& clock_;
  const std::function<absl::Duration()> asleep_;
  mutable Mutex mutex_;
  mutable absl::Duration offset_ ABSL_GUARDED_BY(mutex_);  // Of the believed time to Elapsed().
  // What the clock says instead, and since when.
  mutable std::optional<Doubt> doubt_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::controller
