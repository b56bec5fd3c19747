// How often somebody may call: a bucket of tokens for each caller, so that one who calls without
// end takes nothing from others.

#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace trainyard::controller {

// A person who watches a few jobs makes some calls a second, a program that submits thousands some
// dozens.
inline constexpr double kCallsPerSecond = 50;
inline constexpr double kCallsAtOnce = 200;
// Of joins, which all machines of a fleet may make with one token: ten times as many.
inline constexpr double kJoinCost = 0.1;

// Thread-safe.
class Rates {
 public:
  explicit Rates(const Clock& clock) : clock_(clock) {}

  // RESOURCE_EXHAUSTED: `caller` has called too often; says when to call again. `cost`: of a call
  // of which there may be more, less than 1.
  absl::Status Take(const std::string& caller, double cost = 1);
  size_t size() const;  // Callers that are remembered.

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
