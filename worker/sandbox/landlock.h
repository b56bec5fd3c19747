// Restricts which files a process may use, by the kernel's Landlock (Linux 5.13 or newer).

#pragma once

#include "absl/status/status.h"
#include "worker/sandbox/sandbox.h"

namespace trainyard {

// Returns the kernel's version of Landlock. 0: the kernel has no Landlock, or it is switched off.
int LandlockVersion();

// Applies `writable`, `hidden` and `readable` to the calling thread and to all that it starts, for
// good. Files that are open stay open. Opening a hidden file, and changing a file that is not
// writable, fail with EACCES. Whoever knows the name of a hidden file can look up its attributes.
absl::Status RestrictFiles(const Sandbox& sandbox);

}  // namespace trainyard
