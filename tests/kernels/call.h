// Calls the CPU's kernel for an argument struct.

#pragma once

#include <algorithm>

#include "kernels/device/backend.h"

namespace trainyard::testing {

// Under the thread sanitizer one: libgomp is not instrumented, so that every parallel loop would
// look like a race.
inline int Threads(int wanted) {
#ifdef __SANITIZE_THREAD__
  return std::min(wanted, 1);
#else
  return wanted;
#endif
}

template <typename Args>
void Call(const Args& args, int threads = 2) {
  Exec exec{.threads = Threads(threads)};
  CpuBackend().kernel<Args>()(exec, args);
}

}  // namespace trainyard::testing
