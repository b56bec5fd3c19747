// A filter of system calls: seccomp(2).

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

// From here on these calls fail, in this process and all that it starts. A process that may gain
// privileges is refused: PR_SET_NO_NEW_PRIVS comes first.
absl::Status DenySystemCalls(const DeniedCalls& denied);

}  // namespace trainyard
