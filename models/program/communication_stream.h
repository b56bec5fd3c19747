// The communication stream of a CPU rank: one thread that runs bound calls in the order in which
// they were posted, beside the computing thread.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <future>
#include <mutex>
#include <vector>

#include "models/program/op.h"

namespace trainyard {

// Post and Wait from one thread, the computing one. Allocates nothing after construction.
class CommunicationStream {
 public:
  // At most `capacity` calls are posted between two waits.
  explicit CommunicationStream(size_t capacity);
  // Lets what was posted finish; after a failure there is nothing left to finish.
  ~CommunicationStream();

  // `call` must stay valid until the next Wait has returned.
  void Post(const Call& call);

  // Blocks until every posted call is done. What a call threw is thrown here, once; the stream then
  // is dead.
  void Wait();

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
  std::vector<const Call*> queue_;  // Guarded by mutex_, as is all below but loop_ and waited_.
  size_t posted_ = 0;
  size_t done_ = 0;
  bool stop_ = false;
  bool ended_ = false;  // The loop has returned or thrown.
  double busy_ = 0;
  double waited_ = 0;       // Of the computing thread.
  std::future<void> loop_;  // Holds the exception, if there was one.
};

}  // namespace trainyard
