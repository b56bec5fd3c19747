// Block FP8, the format of the released DeepSeek-V3 and of others: each 128 x 128 block of a matrix
// has a scale.
//
//   y[r, c] = bf16(e4m3(x[r, c]) * scale[r / 128, c / 128])
//
// Source: DeepSeek-V3, arXiv:2412.19437, section 3.3. kernels/device/narrow.h has e4m3.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/dtype.h"

namespace trainyard {

inline constexpr int64_t kFp8Block = 128;

// `x` and `y` are [rows, columns]. `scales` has a row for each 128 of the rows, and a number for
// each 128 of the columns; the last blocks may be smaller.
void DequantizeBlockFp8(std::span<const uint8_t> x, std::span<const float> scales, int64_t columns,
                        std::span<bf16> y);

}  // namespace trainyard
