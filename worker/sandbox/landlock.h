// Which files a process may touch, by the kernel's Landlock (Linux 5.13 and newer).

#pragma once

#include "absl/status/status.h"
#include "worker/sandbox/sandbox.h"

namespace trainyard {

// 0: this kernel has no Landlock, or has it switched off.
int LandlockVersion();

// Makes `writable`, `hidden` and `readable` hold for the calling thread and what it starts, for
// good. Files that are open stay so. Opening what is hidden, and changing what is not writable,
// fails with EACCES; names and attributes of hidden files can be looked up by whoever knows them.
absl::Status RestrictFiles(const Sandbox& sandbox);

}  // namespace trainyard
