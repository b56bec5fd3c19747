// Where a kernel runs: the first argument of every kernel.

#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// Not thread-safe: one per replaying thread.
struct Exec {
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;         // CPU: OpenMP threads of this rank; set once by the rank's main thread.
  void* stream = nullptr;  // CUDA: cudaStream_t of the compute stream.
};

}  // namespace trainyard
