// A filter of system calls: seccomp(2).

#pragma once

#include <span>

#include "absl/status/status.h"

namespace trainyard {

// From here on these calls fail with EPERM, in this process and all that it starts. A process that
// may gain privileges is refused: PR_SET_NO_NEW_PRIVS comes first. At most 100 calls.
absl::Status DenySystemCalls(std::span<const int> calls);

}  // namespace trainyard
