// How fast a device multiplies matrices: the peak that ranks are measured against where none is
// published.

#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device/backend.h"
#include "kernels/device/dtype.h"

namespace trainyard {

// FLOPs of a product of square matrices of side `n`: a multiplication and an addition apart.
constexpr double SquareProductFlops(int64_t n) { return 2.0 * double(n) * double(n) * double(n); }

// FLOP/s of a square matrix product of `dtype` on `threads` threads, the best of several after a
// warm-up, and as large (up to 4096) as lets several fit in `budget`: larger ones come closer to
// the peak. `threads` are the CPU's. Takes up to 400 MB of memory; RESOURCE_EXHAUSTED when those
// are lacking.
absl::StatusOr<double> MeasureMatrixRate(const Backend& backend, DType dtype, int threads,
                                         absl::Duration budget = absl::Milliseconds(60));

}  // namespace trainyard
