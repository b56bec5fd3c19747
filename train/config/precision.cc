#include "train/config/precision.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard {

bool PrecisionRow::RunsOn(DeviceKind kind) const {
  return std::find(devices.begin(), devices.end(), kind) != devices.end();
}

const std::vector<PrecisionRow>& Precisions() {
  constexpr DeviceKind kCpu = DeviceKind::kCpu, kCuda = DeviceKind::kCuda;
  static const std::vector<PrecisionRow> rows = {
      {PrecisionName::kBF16, "BF16", Precision::BF16(), {kCpu, kCuda}},
      {PrecisionName::kF32, "F32", Precision::F32(), {kCpu, kCuda}},
      {PrecisionName::kF64, "F64", Precision::F64(), {kCpu}},  // For checks of numerics.
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
