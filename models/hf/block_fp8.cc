#include "models/hf/block_fp8.h"

#include <array>

#include "common/check.h"
#include "kernels/device/narrow.h"

namespace trainyard {
namespace {

int64_t Blocks(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

}  // namespace

void DequantizeBlockFp8(std::span<const uint8_t> x, std::span<const float> scales, int64_t columns,
                        std::span<bf16> y) {
  const int64_t rows = int64_t(x.size()) / columns;
  CHECK(int64_t(scales.size()) == Blocks(rows) * Blocks(columns)) << scales.size();
  CHECK(y.size() == x.size()) << y.size();
  const std::array<float, 256> values = AllNumbers<E4M3>();
  for (int64_t row = 0; row < rows; ++row) {
    const float* const row_scales = scales.data() + row / kFp8Block * Blocks(columns);
    for (int64_t column = 0; column < columns; ++column) {
      const size_t at = size_t(row * columns + column);
      y[at] = bf16(values[x[at]] * row_scales[column / kFp8Block]);
    }
  }
}

}  // namespace trainyard
