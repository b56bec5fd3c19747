// How fast a device multiplies matrices: the peak that CPU ranks are measured against.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "kernels/device/dtype.h"

namespace trainyard {

// FLOP/s of a square matrix product of `dtype` on `threads` threads, the best of several after a
// warm-up. Takes about 0.1 s, and up to 100 MB of memory; RESOURCE_EXHAUSTED when those are
// lacking.
absl::StatusOr<double> MeasureMatrixRate(const Backend& backend, DType dtype, int threads);

}  // namespace trainyard
