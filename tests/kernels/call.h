// Calls the tested backend's kernel for an argument struct. The same tests run on each backend
// (CMakeLists.txt): what they own is memory that its kernels can read.

#pragma once

#include <algorithm>

#include "kernels/device/backend.h"

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

template <typename Args>
void Call(const Args& args, int threads = 2) {
  Exec exec{.threads = Threads(threads)};
  TestedBackend().kernel<Args>()(exec, args);
  TestedBackend().Synchronize(exec);
}

}  // namespace trainyard::testing
