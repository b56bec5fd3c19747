// What measurements multiply and add.

#pragma once

#include "absl/status/status.h"
#include "kernels/device/backend.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// Fills a float tensor, of any shape, in the memory of `backend`: with normal random numbers on a
// GPU, where equal bits take less power, so that its clock and with it every rate would be higher
// than any model's; with 0.5 on a CPU, where they do not. Tensors of different `stream`s differ.
// Returns when they are there. RESOURCE_EXHAUSTED where a few hundred bytes are lacking.
absl::Status FillMeasuredOperand(const Backend& backend, Exec& exec, const Tensor& tensor,
                                 uint64_t stream);

}  // namespace trainyard
