// The environment of trainers: the variables of the daemon's environment that trainers may see, and
// the variables for the device of a rank. Variables of a user's or a scheduler's session do not
// change a run. No variable comes from a job's spec.

#pragma once

#include <string>
#include <vector>

#include "worker/daemon/devices.h"

namespace trainyard {

// Returns the variables that trainers may see. `environment` is like `environ`: NAME=value, ended
// by a null pointer.
std::vector<std::string> TrainerEnvironment(const char* const* environment);

// Returns the further variables for a rank on `device`: the number of its threads, and the one GPU
// that it sees, if any. The GPU is named by its UUID, because CUDA numbers GPUs in another order
// than NVML does.
std::vector<std::string> DeviceEnvironment(const Device& device);

}  // namespace trainyard
