// Measures how fast a device multiplies matrices. This is the peak for MFU if no peak is published.

#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device/backend.h"
#include "kernels/device/dtype.h"

namespace trainyard {

// FLOPs of a product of square matrices of side `n`. A multiplication and an addition count as two.
constexpr double SquareProductFlops(int64_t n) { return 2.0 * double(n) * double(n) * double(n); }

// Returns the FLOP/s of a square matrix product of `dtype` on `threads` threads (of a CPU): the
// best of several after a warm-up. The product is as large as `budget` allows for several, at most
// 4096: larger products come closer to the peak. Takes up to 400 MB of memory. RESOURCE_EXHAUSTED:
// there is not enough memory.
absl::StatusOr<double> MeasureMatrixRate(const Backend& backend, DType dtype, int threads,
                                         absl::Duration budget = absl::Milliseconds(60));

}  // namespace trainyard
