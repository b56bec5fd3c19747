// SIGTERM and SIGINT as a question that the training loop asks, instead of an interruption.

#pragma once

namespace trainyard {

// From its construction on the two signals wait to be read, in this thread and those started later:
// make it before any other thread. Not thread-safe.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one has come, ever.
  bool Received();

 private:
  int fd_;
  bool received_ = false;
};

}  // namespace trainyard
