// The GPU as a backend.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Of the first device that this process sees. FAILED_PRECONDITION where there is none, its driver
// is too old, or it is no Hopper GPU. Failures of kernels and copies throw DeviceError.
absl::StatusOr<const Backend*> CudaBackend();

}  // namespace trainyard
