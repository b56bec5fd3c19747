// The state that CUDA kernels keep between calls, in Exec::context: scratch memory, and the state
// of libraries.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Returns device memory for one call of a kernel, with any content, 256-byte aligned. The next call
// on this stream may get the same memory. Grows until a step has run once, and never moves, because
// a CUDA graph may hold its address. Throws DeviceError if there is no memory.
std::byte* Scratch(Exec& exec, size_t bytes);

template <typename T>
T* ScratchOf(Exec& exec, int64_t elements) {
  return reinterpret_cast<T*>(Scratch(exec, size_t(elements) * sizeof(T)));
}

// Returns a T that is created at the first use and kept with the stream: library handles and
// prepared calls.
template <typename T>
T& Kept(Exec& exec);

class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  ~Context();
  cudaStream_t MakeStream();  // Creates the context's own stream. Call once.
  std::byte* Scratch(size_t bytes);
  std::shared_ptr<void>& kept(std::type_index type) { return kept_[type]; }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  cudaStream_t stream_ = nullptr;
  std::vector<Block> scratch_;  // The last is the largest.
  std::unordered_map<std::type_index, std::shared_ptr<void>> kept_;
};

Context& ContextOf(Exec& exec);

// Has its own stream, which is destroyed with the last copy.
Exec NewExec(int threads);

template <typename T>
T& Kept(Exec& exec) {
  std::shared_ptr<void>& kept = ContextOf(exec).kept(typeid(T));
  if (kept == nullptr) kept = std::make_shared<T>();
  return *static_cast<T*>(kept.get());
}

}  // namespace trainyard::cuda
