// Filters system calls, by seccomp(2).

#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace trainyard {

struct DeniedCalls {
  std::span<const int> calls = {};   // EPERM.
  std::span<const int> absent = {};  // ENOSYS, so that callers use what older kernels have.
  uint32_t clone_flags = 0;          // EPERM for clone(2) with any of them.
};

// From here on, these calls fail in this process and in all that it starts. The process must have
// set PR_SET_NO_NEW_PRIVS before, or the kernel refuses the filter.
absl::Status DenySystemCalls(const DeniedCalls& denied);

}  // namespace trainyard
