// A mutex whose rules the compiler checks. Clang's thread-safety analysis (scripts/sanitize.sh
// locks) refuses code that reads or writes a member marked ABSL_GUARDED_BY(mutex_) without holding
// the mutex. The analysis does not know std::mutex, so std::mutex is used in this file alone.
//
// absl::Mutex has the same marks, but Debian's Abseil is not built for the thread sanitizer. The
// sanitizer would not see its locks, and would report races that do not exist. It does see the
// locks of the standard library.
//
// Wait for a condition in a `while` loop of the function that holds the mutex, and not in a lambda:
// the analysis treats a lambda as a function that holds nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace trainyard {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex until the end of the scope, except between Unlock and Lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    mutex_.Unlock();
    held_ = false;
  }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// A wait releases the mutex, and holds it again afterwards. A wait may end without any
// notification, as with std::condition_variable.
class CondVar {
 public:
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // `deadline`: a reading of RealClock().Monotonic(). Returns false once the deadline has passed.
  bool WaitUntil(Mutex& mutex, absl::Duration deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    using Clock = std::chrono::steady_clock;
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const Clock::time_point until(absl::ToChronoNanoseconds(deadline));
    const bool in_time = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

 private:
  std::condition_variable changed_;
};

}  // namespace trainyard
