// What a trainer sees of the daemon's environment: a list of names that it may, so that nothing of
// a user's or a scheduler's session changes a run. And what a rank on a device is told that way.

#pragma once

#include <string>
#include <vector>

#include "worker/daemon/devices.h"

namespace trainyard {

// `environment` as in `environ`: NAME=value, ended by a null pointer.
std::vector<std::string> TrainerEnvironment(const char* const* environment);

// For a rank on `device`, besides the above: its threads, and the one GPU that it sees, if any. By
// UUID: numbers are CUDA's, in another order than NVML's.
std::vector<std::string> DeviceEnvironment(const Device& device);

}  // namespace trainyard
