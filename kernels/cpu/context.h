// The state that CPU kernels keep between calls, in Exec::context: oneDNN's prepared primitives,
// and scratch memory. The scratch memory only grows, so a step allocates nothing after the first
// one.

#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Scratch memory of one thread. Not thread-safe.
class Scratch {
 public:
  // Returns at least `bytes` bytes, 64-byte aligned, with any content. Valid until the next call.
  std::byte* Reserve(size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

class DnnlPrimitives;  // dnnl_adapter.h

struct Context {
  std::vector<Scratch> scratch;  // One per thread.
  Scratch shared;                // Used by all threads, in disjoint parts.
  Scratch widened;               // Operands of a product that are stored in a narrower type.
  std::shared_ptr<DnnlPrimitives> primitives;
};

// Returns the context of `exec`, with scratch memory for its threads. Creates it at the first call.
Context& ContextOf(Exec& exec);

}  // namespace trainyard::cpu
