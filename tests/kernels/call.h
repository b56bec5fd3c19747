// Calls the CPU's kernel for an argument struct.

#pragma once

#include "kernels/device/backend.h"

namespace trainyard::testing {

template <typename Args>
void Call(const Args& args, int threads = 2) {
  Exec exec{.threads = threads};
  CpuBackend().kernel<Args>()(exec, args);
}

}  // namespace trainyard::testing
