// One thread that runs what it is given: work that neither the store's thread nor gRPC's may wait
// for. Each one's work is done in order, and all have their turns: who gives much delays others by
// one piece of work each.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace trainyard::controller {

class Executor {
 public:
  Executor();
  ~Executor();  // Runs what is queued, then ends.
  void Post(const std::string& whose, std::function<void()> work);
  // False: `most` pieces of work of all wait already, and this one is not taken.
  bool Offer(const std::string& whose, size_t most, std::function<void()> work);

 private:
  void PostLocked(const std::string& whose, std::function<void()> work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::deque<std::function<void()>>> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);  // Whose queues have work, each once.
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
