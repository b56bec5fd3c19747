// Finds numbers that are not finite among the values of a tensor.

#pragma once

#include <cstdint>

#include "kernels/device/dtype.h"

namespace trainyard {

// Returns the index of the first of `count` numbers that is NaN or infinite; `count` if there is
// none. The dtype is F64, F32 or BF16.
int64_t FirstNotFinite(const void* values, int64_t count, DType dtype);

}  // namespace trainyard
