// Limits how often each caller may call. Each caller has a token bucket of its own, so a caller who
// calls without end takes nothing from others.

#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace trainyard::controller {

// A person who watches a few jobs makes some calls a second. A program that submits thousands of
// jobs makes some dozens.
inline constexpr double kCallsPerSecond = 50;
inline constexpr double kCallsAtOnce = 200;
// The cost of a join. All machines of a fleet may join with one token, so a token allows ten times
// as many joins as other calls.
inline constexpr double kJoinCost = 0.1;

// Thread-safe.
class Rates {
 public:
  explicit Rates(const Clock& clock) : clock_(clock) {}

  // Takes `cost` from the bucket of `caller`; a call of which more are allowed costs less than 1.
  // RESOURCE_EXHAUSTED: `caller` has called too often.
  absl::Status Take(const std::string& caller, double cost = 1);
  size_t size() const;  // How many callers are remembered.

 private:
  struct Bucket {
    double tokens = kCallsAtOnce;
    absl::Duration filled;  // A reading of clock_.Monotonic().
  };
  void Fill(Bucket& bucket, absl::Duration now) const;

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  absl::Duration swept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::controller
