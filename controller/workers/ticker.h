// Calls a function at regular intervals, and at once when woken, on a thread of its own.

#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace trainyard::controller {

class Ticker {
 public:
  Ticker() = default;
  ~Ticker() { Stop(); }

  void Start(absl::Duration every, std::function<void()> tick);  // Call this once.
  void Stop();
  void Wake();  // From any thread, even before Start and after Stop.

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
