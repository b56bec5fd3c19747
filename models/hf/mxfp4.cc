#include "models/hf/mxfp4.h"

#include <cmath>

#include "common/check.h"

namespace trainyard {
namespace {

constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace

void DequantizeMxfp4(std::span<const uint8_t> blocks, std::span<const uint8_t> scales,
                     std::span<bf16> y) {
  CHECK(blocks.size() == scales.size() * kMxfp4BlockBytes) << blocks.size();
  CHECK(y.size() == scales.size() * kMxfp4Block) << y.size();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const float scale = std::ldexp(1.0f, int(scales[i / kMxfp4BlockBytes]) - 127);
    y[2 * i] = bf16(kValues[blocks[i] & 15] * scale);
    y[2 * i + 1] = bf16(kValues[blocks[i] >> 4] * scale);
  }
}

}  // namespace trainyard
