// The memory of this machine.

#pragma once

#include <cstdint>

namespace trainyard {

// Returns the memory of the machine, or the limit of this process's control group if that is less.
uint64_t HostMemoryBytes();

// Returns the bytes that a program can still take without swapping: those that Linux calls
// available, or what the limit of this process's control group leaves. 2^63 where neither is known.
uint64_t AvailableMemoryBytes();

}  // namespace trainyard
