// Sums and maxima over the ranks' copies of one tensor, in rank order. So every implementation of
// Collective that uses them gives the same bits.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/dtype.h"

namespace trainyard {

// out[i] = parts[0][i] + parts[1][i] + ..., from left to right. f64, f32 and i64 are summed in
// their own type (i64 wraps), bf16 in f32 with one rounding at the end. `out` may be one of the
// parts.
void SumInRankOrder(std::span<const void* const> parts, DType dtype, int64_t elements, void* out);

// out[i] = the largest of parts[0][i], parts[1][i], ...; f64 and i64.
void MaxInRankOrder(std::span<const void* const> parts, DType dtype, int64_t elements, void* out);

}  // namespace trainyard
