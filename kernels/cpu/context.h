// What CPU kernels keep between calls, in Exec::context: scratch that only grows, so that a step
// allocates nothing once it has run, and oneDNN's prepared primitives.

#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Memory of one thread. Not thread-safe.
class Scratch {
 public:
  // At least `bytes`, 64-byte aligned, of any content; valid until the next call.
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
  std::vector<Scratch> scratch;  // One a thread.
  Scratch shared;                // Of all threads, in disjoint parts.
  std::shared_ptr<DnnlPrimitives> primitives;
};

// The context of `exec`, made on first use, with scratch for its threads.
Context& ContextOf(Exec& exec);

}  // namespace trainyard::cpu
