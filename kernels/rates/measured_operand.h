// The operands of measurements.

#pragma once

#include "absl/status/status.h"
#include "kernels/device/backend.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// Fills a floating-point tensor of any shape in the memory of `backend`. On a GPU: with normal
// random numbers, because equal bits take less power, so the clock and every measured rate would be
// higher than in training. On a CPU, where the values do not matter: with 0.5. Different `stream`s
// give different values. Returns when the values are there. RESOURCE_EXHAUSTED: there is no memory
// for a few hundred bytes.
absl::Status FillMeasuredOperand(const Backend& backend, Exec& exec, const Tensor& tensor,
                                 uint64_t stream);

}  // namespace trainyard
