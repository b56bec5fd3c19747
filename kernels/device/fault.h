// Makes a device fail, for tests of failures. On a GPU a kernel leaves a message and traps: a later
// call reports the failure with the message, and the process cannot use the GPU any more. On a CPU
// the kernel throws a DeviceError.

#pragma once

namespace trainyard {

struct FaultArgs {};

inline void Check(const FaultArgs&) {}

}  // namespace trainyard
