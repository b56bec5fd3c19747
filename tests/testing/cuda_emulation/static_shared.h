// The static shared memory of kernels, which the emulation poisons before each block.
//
// A variable with __shared__ is a thread-local one that lives in a function (cuda_runtime.h). It is
// found by the symbol that the program, or a library that is loaded, has for it. Sections cannot be
// used to find these variables: GCC 12 ignores the section of a static variable in a template.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace cuda_emulation {

// The calling thread's static shared memory while it runs the blocks of a launch: of kernels, which
// are functions of the namespace trainyard::cuda, and have no other thread-local variables.
//
// All of it is 0xff, which is NaN, when the launch begins. What the first block has changed is 0xff
// again before each later one. To look at all variables after each block would take longer than
// most blocks, so what only a later block has changed stays until the launch ends.
class StaticShared {
 public:
  StaticShared();
  ~StaticShared();
  StaticShared(const StaticShared&) = delete;

  void EndBlock();

 private:
  using Variable = std::span<std::byte>;
  std::vector<Variable> PoisonChanged();  // Returns what was changed.

  std::vector<Variable> all_, used_;
  bool first_ = true;
};

}  // namespace cuda_emulation
