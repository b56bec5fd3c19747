// A mutex whose rules the compiler checks. Clang's thread-safety analysis (scripts/sanitize.sh
// locks) refuses to read or write a member that is marked ABSL_GUARDED_BY(mutex_) unless the mutex
// is held. The analysis knows nothing of std::mutex, which therefore stands in this file alone.
//
// These are not absl::Mutex, which has the same marks, because Debian's Abseil is not built for the
// thread sanitizer: the sanitizer would not see its locks and would report races that are none.
// The sanitizer sees those of the standard library.
//
// A condition is waited for in a `while` loop of the function that holds the mutex. The analysis
// looks at a lambda as at a function that holds nothing.
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

// Holds a mutex from here to the end of the scope, but for what lies between Unlock and Lock.
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

// A wait lets go of the mutex and holds it again when the wait is over. A wait may be over for no
// reason at all, as with std::condition_variable.
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
