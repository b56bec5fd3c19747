#include "models/hf/block_fp8.h"

#include <array>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace trainyard {
namespace {

int64_t Blocks(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

}  // namespace

float E4m3ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  float size = 0;
  if (exponent == 15 && fraction == 7) {
    size = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    size = std::ldexp(float(fraction), -9);
  } else {
    size = std::ldexp(float(8 + fraction), exponent - 10);
  }
  return bits >> 7 != 0 ? -size : size;
}

void DequantizeBlockFp8(std::span<const uint8_t> x, std::span<const float> scales, int64_t columns,
                        std::span<bf16> y) {
  const int64_t rows = int64_t(x.size()) / columns;
  CHECK(int64_t(scales.size()) == Blocks(rows) * Blocks(columns)) << scales.size();
  CHECK(y.size() == x.size()) << y.size();
  std::array<float, 256> values = {};
  for (size_t i = 0; i < values.size(); ++i) values[i] = E4m3ToFloat(uint8_t(i));
  for (int64_t row = 0; row < rows; ++row) {
    const float* const row_scales = scales.data() + row / kFp8Block * Blocks(columns);
    for (int64_t column = 0; column < columns; ++column) {
      const size_t at = size_t(row * columns + column);
      y[at] = bf16(values[x[at]] * row_scales[column / kFp8Block]);
    }
  }
}

}  // namespace trainyard
