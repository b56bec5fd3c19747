// What a profiler that watched this process would have been told.

#pragma once

#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"

namespace cuda_emulation {

struct ProfilerCall {
  enum Kind { kStart, kStop, kBeginRange, kEndRange };
  Kind kind;
  std::string name;        // Of a range that begins.
  std::thread::id thread;  // Whose call it was.
  bool idle = false;       // Whether that thread had waited for all that it had given the device.
};

// The calls since the last TakeProfilerCalls, in their order.
std::vector<ProfilerCall> TakeProfilerCalls();

// What cudaProfilerStart returns from now on.
void SetProfilerError(cudaError_t error);

}  // namespace cuda_emulation
