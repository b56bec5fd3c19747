// The place where a kernel runs: the first argument of every kernel.

#pragma once

#include <cstdint>
#include <memory>

namespace trainyard {

enum class DeviceKind : uint8_t { kCpu, kCuda };

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
