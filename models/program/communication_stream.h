// The communication stream of a rank: one thread, with its own Exec, that runs bound calls in the
// order in which they were posted, while the compute thread works on. A call launches its work on
// the device. If the device has streams of its own, the two streams wait for each other on the
// device, and no thread waits for the device.

#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "kernels/device/backend.h"
#include "models/program/op.h"

namespace trainyard {

// Called on the compute thread before and after each wait that may block.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void BeginWait() = 0;
  virtual void EndWait() = 0;
};

// Post and Wait must be called from one thread, the compute thread. Allocates nothing after
// construction.
class CommunicationStream {
 public:
  // The number of a posted call, from 1; 0 is no call.
  using Ticket = uint64_t;

  // Each call runs after the work that had been launched on `compute` when the call was posted.
  // Post blocks while `capacity` posted calls have not returned.
  CommunicationStream(size_t capacity, const Backend& backend, const Exec& compute);
  // Waits until all posted calls have been launched. After a failure, returns at once.
  ~CommunicationStream();

  // The Exec on which calls run.
  const Exec& exec() const { return exec_; }

  // `call` must stay valid until it has been waited for.
  Ticket Post(const Call& call);

  // Orders all later work on `compute` after the call and all calls before it. Blocks until these
  // calls have returned; on a CPU their work is then done. If a call threw, the next wait for this
  // call or a later one throws the exception, once. The stream must not be used afterwards.
  void Wait(Ticket ticket);
  void WaitForAll() { Wait(posted()); }
  // Blocks until no call runs or will run, and the device has finished the work of all calls.
  // Leaves a failure to the next wait.
  void Settle() noexcept;

  void set_wait_observer(WaitObserver* observer) { observer_ = observer; }  // May be null.

 private:
  struct Posted {
    const Call* call = nullptr;
    std::unique_ptr<Event> after;  // Recorded on the compute stream when the call was posted.
    std::unique_ptr<Event> done;
  };
  void Loop();
  // Only for the compute thread. That thread alone writes posted_, so it may read it without the
  // mutex.
  Ticket posted() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return posted_; }
  void WaitUntilGiven(Ticket ticket);

  const Exec& compute_;
  Exec exec_;
  Mutex mutex_;
  CondVar posted_cv_;
  CondVar given_cv_;
  // A ring. An entry belongs to the compute thread until posted_ counts its call, and to the loop
  // from then until given_ counts the same call.
  std::vector<Posted> queue_;
  Ticket posted_ ABSL_GUARDED_BY(mutex_) = 0;  // Written only by the compute thread.
  Ticket given_ ABSL_GUARDED_BY(mutex_) = 0;   // Number of calls that have returned.
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // The loop has returned or thrown.
  WaitObserver* observer_ = nullptr;            // Used by the compute thread, as the next.
  Ticket awaited_ = 0;                          // `compute` waits for calls up to this one.
  std::future<void> loop_;  // Holds the exception, if any. Used by the compute thread.
};

}  // namespace trainyard
