// The GPU as a backend.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Returns the backend of the first device that this process sees. Failures of kernels and copies
// throw DeviceError. FAILED_PRECONDITION: there is no device, its driver is too old, it is not a
// Hopper GPU, or its UUID is not `uuid` ("GPU-8a56a4bc-..."; empty: any).
absl::StatusOr<const Backend*> CudaBackend(const std::string& uuid = "");

}  // namespace trainyard
