// The place where a kernel runs: the first argument of every kernel.

#pragma once

#include <memory>

#include "common/device_kind.h"

namespace trainyard {

// Not thread-safe: each thread that replays a program has its own Exec.
struct Exec {
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;         // CPU: OpenMP threads of this rank; set once by the rank's main thread.
  void* stream = nullptr;  // CUDA: cudaStream_t of the compute stream.
  // State that the backend's kernels keep between calls: library handles, prepared primitives,
  // scratch memory. Created by the first kernel that needs it, and used only by the backend's
  // kernels.
  std::shared_ptr<void> context = nullptr;
};

}  // namespace trainyard
