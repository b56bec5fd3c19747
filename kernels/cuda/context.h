// What CUDA kernels keep between calls, in Exec::context: scratch memory, and what libraries need.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Device memory for one call of a kernel, of any content, 256-byte aligned; the next call on this
// stream may have the same. Grows until a step has run once, and never moves: a CUDA graph may hold
// it. Throws DeviceError where there is none.
std::byte* Scratch(Exec& exec, size_t bytes);

template <typename T>
T* ScratchOf(Exec& exec, int64_t elements) {
  return reinterpret_cast<T*>(Scratch(exec, size_t(elements) * sizeof(T)));
}

// A T made on first use, and kept with the stream: library handles and prepared calls.
template <typename T>
T& Kept(Exec& exec);

class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  ~Context();
  cudaStream_t MakeStream();  // Its own; once.
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

// With a stream of its own, which ends with the last copy.
Exec NewExec(int threads);

template <typename T>
T& Kept(Exec& exec) {
  std::shared_ptr<void>& kept = ContextOf(exec).kept(typeid(T));
  if (kept == nullptr) kept = std::make_shared<T>();
  return *static_cast<T*>(kept.get());
}

}  // namespace trainyard::cuda
