// How fast a device streams memory: the bound of every op that multiplies little.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Bytes/s of a sum of two f32 tensors beyond all caches on `threads` threads of a
// CPU, the best of several; counted are the bytes of its operands. Takes about 0.2 s and 200 MB of
// memory; RESOURCE_EXHAUSTED when that is lacking.
absl::StatusOr<double> MeasureMemoryRate(const Backend& backend, int threads);

}  // namespace trainyard
