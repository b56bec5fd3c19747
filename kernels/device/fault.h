// A device that fails, for tests of what comes of that: on a GPU a kernel that traps, of which a
// later call tells, and after which the process can use the GPU no more; on a CPU a DeviceError.

#pragma once

namespace trainyard {

struct FaultArgs {};

inline void Check(const FaultArgs&) {}

}  // namespace trainyard
