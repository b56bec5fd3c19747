// Calls the tested backend's kernel for an argument struct. The same tests run on each backend
// (CMakeLists.txt): what they own is memory that its kernels can read.

#pragma once

#include <algorithm>
#include <memory>

#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"

namespace trainyard::testing {

const Backend& TestedBackend();  // tested_*.cc

// Under the thread sanitizer one: libgomp is not instrumented, so that every parallel loop would
// look like a race.
inline int Threads(int wanted) {
#ifdef __SANITIZE_THREAD__
  return std::min(wanted, 1);
#else
  return wanted;
#endif
}

// The heap is what a device can read, so a StepState goes there and back.
template <typename Args>
void Call(Args args, int threads = 2) {
  Exec exec = TestedBackend().NewExec(Threads(threads));
  const auto run = [&] {
    TestedBackend().kernel<Args>()(exec, args);
    TestedBackend().Synchronize(exec);
  };
  if constexpr (requires { *args.state; }) {
    if (args.state == nullptr) return run();
    const auto theirs = args.state;
    const auto mine = std::make_unique<StepState>(*theirs);
    args.state = mine.get();
    run();
    if constexpr (requires { *theirs = *mine; }) *theirs = *mine;
  } else {
    run();
  }
}

}  // namespace trainyard::testing
