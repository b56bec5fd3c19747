// The communication stream of a CPU rank: one thread that runs bound calls in the order in which
// they were posted, beside the computing thread.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <vector>

#include "models/program/op.h"

namespace trainyard {

// Post and Wait from one thread, the computing one. Allocates nothing after construction.
class CommunicationStream {
 public:
  // The nth call posted, from 1; 0 is none.
  using Ticket = uint64_t;

  // Posting more calls than `capacity` that are not done waits for the first of them.
  explicit CommunicationStream(size_t capacity);
  // Lets what was posted finish; after a failure there is nothing left to finish.
  ~CommunicationStream();

  // `call` must stay valid until it is done.
  Ticket Post(const Call& call);

  // Blocks until a call, and all before it, are done. What a call threw is thrown by the next wait
  // for it or a later one, once; the stream then is dead.
  void Wait(Ticket ticket);
  void WaitForAll() { Wait(posted_); }
  // Returns when no call is running or will run; a failure is left to the next wait.
  void Settle() noexcept;

  // Seconds since the last call: blocked in Wait, and spent in calls.
  struct Seconds {
    double waited = 0;
    double busy = 0;
  };
  Seconds TakeSeconds();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable posted_cv_;
  std::condition_variable done_cv_;
  std::vector<const Call*> queue_;  // A ring; guarded by mutex_, as is all below but where said.
  Ticket posted_ = 0;               // Written by the computing thread alone.
  Ticket done_ = 0;
  bool stop_ = false;
  bool ended_ = false;  // The loop has returned or thrown.
  double busy_ = 0;
  double waited_ = 0;       // Of the computing thread.
  std::future<void> loop_;  // Holds the exception, if there was one. Of the computing thread.
};

}  // namespace trainyard
