// The communication stream of a rank: one thread, with an Exec of its own, that runs bound calls in
// the order in which they were posted, beside the computing thread. It gives its device what they
// are; where that has a stream of its own, the two streams wait for each other, and no thread.

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

// Told, on the computing thread, around each wait for communication that is one.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void BeginWait() = 0;
  virtual void EndWait() = 0;
};

// Post and Wait from one thread, the computing one. Allocates nothing after construction.
class CommunicationStream {
 public:
  // The nth call posted, from 1; 0 is none.
  using Ticket = uint64_t;

  // A call comes after what `compute` had been given when it was posted. Posting more calls than
  // `capacity` that have not been made waits for the first of them.
  CommunicationStream(size_t capacity, const Backend& backend, const Exec& compute);
  // Lets what was posted be given; after a failure there is nothing left to finish.
  ~CommunicationStream();

  // What calls run on.
  const Exec& exec() const { return exec_; }

  // `call` must stay valid until it has been waited for.
  Ticket Post(const Call& call);

  // What `compute` is given from now on comes after a call, and all before it. Blocks until these
  // have been made, which on a CPU is all that they are. What a call threw is thrown by the next
  // wait for it or a later one, once; the stream then is dead.
  void Wait(Ticket ticket);
  void WaitForAll() { Wait(posted()); }
  // Returns when no call is being made or will be, and the device has done those that were; a
  // failure is left to the next wait.
  void Settle() noexcept;

  void set_wait_observer(WaitObserver* observer) { observer_ = observer; }  // Null: nobody.

 private:
  struct Posted {
    const Call* call = nullptr;
    std::unique_ptr<Event> after;  // Of the computing thread, when it was posted.
    std::unique_ptr<Event> done;
  };
  void Loop();
  // For the computing thread, which alone writes it and so needs no mutex to read it.
  Ticket posted() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return posted_; }
  void WaitUntilGiven(Ticket ticket);

  const Exec& compute_;
  Exec exec_;
  Mutex mutex_;
  CondVar posted_cv_;
  CondVar given_cv_;
  // A ring. A place is the computing thread's until posted_ counts what stands there, and the
  // loop's from then until given_ counts the same call.
  std::vector<Posted> queue_;
  Ticket posted_ ABSL_GUARDED_BY(mutex_) = 0;  // Written by the computing thread alone.
  Ticket given_ ABSL_GUARDED_BY(mutex_) = 0;   // To the device: the call has returned.
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // The loop has returned or thrown.
  WaitObserver* observer_ = nullptr;            // Of the computing thread, as the next.
  Ticket awaited_ = 0;                          // What `compute` comes after already.
  std::future<void> loop_;  // Holds the exception, if there was one. Of the computing thread.
};

}  // namespace trainyard
