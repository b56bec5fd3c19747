// The GPU as a backend.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Of the first device that this process sees. FAILED_PRECONDITION where there is none, its driver
// is too old, it is no Hopper GPU, or its UUID is not `uuid` ("GPU-8a56a4bc-..."; empty: any).
// Failures of kernels and copies throw DeviceError.
absl::StatusOr<const Backend*> CudaBackend(const std::string& uuid = "");

}  // namespace trainyard
