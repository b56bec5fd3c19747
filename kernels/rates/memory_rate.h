// Measures how fast a device streams memory. This rate bounds every op that multiplies little.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Returns the bytes/s of a sum of two f32 tensors that exceed all caches, on `threads` threads (of
// a CPU): the best of several. Counts the bytes of the operands. Takes about 0.2 s and 200 MB of
// memory. RESOURCE_EXHAUSTED: there is not enough memory.
absl::StatusOr<double> MeasureMemoryRate(const Backend& backend, int threads);

}  // namespace trainyard
