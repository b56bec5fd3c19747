// One thread that runs what it is given, in order: work that neither the store's thread nor gRPC's
// may wait for.

#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace trainyard::controller {

class Executor {
 public:
  Executor();
  ~Executor();  // Runs what is queued, then ends.
  void Post(std::function<void()> work);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
