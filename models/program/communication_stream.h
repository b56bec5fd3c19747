// The communication stream of a rank: one thread, with an Exec of its own, that runs bound calls in
// the order in which they were posted, beside the computing thread.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

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

  // A call comes after what `compute` had been given when it was posted, and is done when the
  // device has done it. Posting more calls than `capacity` that are not done waits for the first
  // of them.
  CommunicationStream(size_t capacity, const Backend& backend, const Exec& compute);
  // Lets what was posted finish; after a failure there is nothing left to finish.
  ~CommunicationStream();

  // What calls run on.
  const Exec& exec() const { return exec_; }

  // `call` must stay valid until it is done.
  Ticket Post(const Call& call);

  // Blocks until a call, and all before it, are done. What a call threw is thrown by the next wait
  // for it or a later one, once; the stream then is dead.
  void Wait(Ticket ticket);
  void WaitForAll() { Wait(posted_); }
  // Returns when no call is running or will run; a failure is left to the next wait.
  void Settle() noexcept;

  void set_wait_observer(WaitObserver* observer) { observer_ = observer; }  // Null: nobody.

 private:
  struct Posted {
    const Call* call = nullptr;
    std::unique_ptr<Event> after;
  };
  void Loop();

  const Backend& backend_;
  const Exec& compute_;
  Exec exec_;
  std::mutex mutex_;
  std::condition_variable posted_cv_;
  std::condition_variable done_cv_;
  std::vector<Posted> queue_;  // A ring; guarded by mutex_, as is all below but where said.
  Ticket posted_ = 0;          // Written by the computing thread alone.
  Ticket done_ = 0;
  bool stop_ = false;
  bool ended_ = false;                // The loop has returned or thrown.
  WaitObserver* observer_ = nullptr;  // Of the computing thread.
  std::future<void> loop_;  // Holds the exception, if there was one. Of the computing thread.
};

}  // namespace trainyard
