// Runs work on one thread of its own: work for which neither the store's thread nor gRPC's threads
// may wait. The work of one caller runs in order. Callers take turns, so a caller with much work
// delays each other caller by one piece of work at a time.

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
  ~Executor();  // Runs the queued work first.
  void Post(const std::string& whose, std::function<void()> work);
  // Returns false, and does not take the work, if `most` pieces of all callers wait already.
  bool Offer(const std::string& whose, size_t most, std::function<void()> work);

 private:
  void PostLocked(const std::string& whose, std::function<void()> work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::deque<std::function<void()>>> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> turns_
      ABSL_GUARDED_BY(mutex_);  // The callers with queued work, each once.
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
