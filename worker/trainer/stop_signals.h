// Turns SIGTERM and SIGINT into a question that the training loop asks, instead of an interruption.

#pragma once

#include "common/file_descriptor.h"

namespace trainyard {

// Blocks the two signals in this thread and in all threads that are started later, so make this
// object before any other thread. Not thread-safe.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether a signal has come since construction.
  bool Received();

 private:
  FileDescriptor signals_;
  bool received_ = false;
};

}  // namespace trainyard
