// The current and past operations of all groups of a rank: for a watcher that checks progress, and
// for the report of a failure.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "kernels/collective/flight_recorder.h"

namespace trainyard {

// Thread-safe. Outlives the groups, and keeps their last operations.
class GroupActivity {
 public:
  std::atomic<int> under_way = 0;  // Operations that have begun and not ended.
  std::atomic<uint64_t> done = 0;  // Operations that have ended.

  void Add(std::shared_ptr<const FlightRecorder> group) {
    const MutexLock lock(mutex_);
    groups_.push_back(std::move(group));
  }
  // The recorders of every group made so far.
  std::vector<std::shared_ptr<const FlightRecorder>> groups() const {
    const MutexLock lock(mutex_);
    return groups_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const FlightRecorder>> groups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
