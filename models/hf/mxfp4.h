// MXFP4, the format of the released gpt-oss experts: 32 numbers of 4 bits share a power of two.
//
//   y[32 b + 2 i]     = e2m1(block[b][i] mod 16) * 2^(scale[b] - 127)
//   y[32 b + 2 i + 1] = e2m1(block[b][i] div 16) * 2^(scale[b] - 127)
//
// e2m1 has the values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the order of the 4 bits.
// Scale 255 is NaN in the format; as in `transformers`, it is 2^128 here, infinity in f32.
//
// Source: OCP Microscaling Formats (MX) 1.0, sections 5.3.3 and 6.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/dtype.h"

namespace trainyard {

inline constexpr int64_t kMxfp4Block = 32;  // Numbers.
inline constexpr int64_t kMxfp4BlockBytes = 16;

// `blocks` has kMxfp4BlockBytes for each scale, and `y` kMxfp4Block numbers.
void DequantizeMxfp4(std::span<const uint8_t> blocks, std::span<const uint8_t> scales,
                     std::span<bf16> y);

}  // namespace trainyard
