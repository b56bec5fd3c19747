#include "train/config/precision.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard {

bool PrecisionRow::RunsOn(DeviceKind kind) const {
  const std::vector<ProductFormat> used = formats.ProductFormatsUsed();
  return std::all_of(used.begin(), used.end(), [&](const ProductFormat& format) {
    return std::any_of(ProductFormatRows().begin(), ProductFormatRows().end(),
                       [&](const ProductFormatRow& row) {
                         const auto has = std::find(row.devices.begin(), row.devices.end(), kind);
                         return row.format == format && has != row.devices.end();
                       });
  });
}

const std::vector<ProductFormatRow>& ProductFormatRows() {
  constexpr DeviceKind kCpu = DeviceKind::kCpu, kCuda = DeviceKind::kCuda;
  static const std::vector<ProductFormatRow> rows = {
      {{DType::kBF16, DType::kBF16}, {kCpu, kCuda}},
      {{DType::kBF16, DType::kF32}, {kCpu, kCuda}},
      {{DType::kF32, DType::kF32}, {kCpu, kCuda}},
      {{DType::kF64, DType::kF64}, {kCpu}},  // For checks of numerics; jobs in f64 get no GPU.
  };
  return rows;
}

const std::vector<PrecisionRow>& Precisions() {
  static const std::vector<PrecisionRow> rows = {
      {PrecisionName::kBF16, "BF16", Precision::BF16()},
      {PrecisionName::kF32, "F32", Precision::F32()},
      {PrecisionName::kF64, "F64", Precision::F64()},
  };
  return rows;
}

const PrecisionRow& RowOf(PrecisionName precision) {
  const std::vector<PrecisionRow>& rows = Precisions();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const PrecisionRow& candidate) {
    return candidate.precision == precision;
  });
  CHECK(row != rows.end()) << "precision " << int(precision) << " has no row";
  return *row;
}

const char* Name(PrecisionName precision) { return RowOf(precision).name; }

}  // namespace trainyard
