#include "train/config/precision.h"

#include <algorithm>
#include <cstdlib>

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
  static const std::vector<ProductFormatRow> rows = [] {
    std::vector<ProductFormatRow> all = {
        {{DType::kBF16, DType::kBF16}, {kCpu, kCuda}},
        {{DType::kBF16, DType::kF32}, {kCpu, kCuda}},
        {{DType::kF32, DType::kF32}, {kCpu, kCuda}},
        {{DType::kF64, DType::kF64}, {kCpu}},  // For checks of numerics; jobs in f64 get no GPU.
    };
    // A CPU multiplies with scales of every kind, and so do GPUs, if not all by their tensor cores
    // (kernels/products/scaled_matmul.h).
    for (const PrecisionRow& row : Precisions()) {
      for (const ProductFormat& format : row.formats.layer) {
        if (format.scaled()) all.push_back({format, {kCpu, kCuda}});
      }
    }
    return all;
  }();
  return rows;
}

const std::vector<PrecisionRow>& Precisions() {
  using enum PrecisionName;
  constexpr DType kE4M3 = DType::kE4M3, kE5M2 = DType::kE5M2;
  constexpr Scaling kTensor{}, kRow{.kept = 1}, kDelayed{.history = 1024};
  constexpr Scaling kLine{.kept = 1, .summed = 128}, kSquare{.kept = 128, .summed = 128};
  const Precision bf16 = Precision::BF16();
  // Sources: Transformer Engine's recipes DelayedScaling and Float8CurrentScaling; DeepSeek-V3,
  // arXiv:2412.19437, section 3.3; scales of outer vectors, as in cuBLASLt and torchao.
  static const std::vector<PrecisionRow> rows = {
      {kBF16, "BF16", bf16},
      {kF32, "F32", Precision::F32()},
      {kF64, "F64", Precision::F64()},
      {kFP8Delayed, "FP8_DELAYED",
       bf16.WithLayers({kE4M3, kDelayed}, {kE4M3, kDelayed}, {kE5M2, kDelayed})
           .WithExpertsAsLayers()},
      {kFP8Current, "FP8_CURRENT",
       bf16.WithLayers({kE4M3, kTensor}, {kE4M3, kTensor}, {kE5M2, kTensor})},
      {kFP8Blockwise, "FP8_BLOCKWISE",
       bf16.WithLayers({kE4M3, kLine}, {kE4M3, kSquare}, {kE4M3, kLine})},
      {kFP8Rowwise, "FP8_ROWWISE",
       bf16.WithLayers({kE4M3, kRow}, {kE4M3, kRow}, {kE5M2, kRow}).WithExpertsByRows()},
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

Precision FormatsOf(const JobConfig& job) {
  const Precision& formats = RowOf(job.precision).formats;
  const bool compact = job.optimizer.options.state() == OptimizerState::kCompact;
  return compact ? formats.WithCompactState() : formats;
}

std::vector<std::string> PrecisionNamesOn(DeviceKind kind) {
  std::vector<std::string> names;
  for (const PrecisionRow& row : Precisions()) {
    if (row.RunsOn(kind)) names.push_back(row.name);
  }
  return names;
}

std::string NearestPrecisionOn(DeviceKind kind, absl::string_view name) {
  const std::vector<PrecisionRow>& rows = Precisions();
  const auto wanted = std::find_if(rows.begin(), rows.end(),
                                   [&](const PrecisionRow& row) { return row.name == name; });
  CHECK(wanted != rows.end()) << "precision " << name << " has no row";
  const auto missing = [&](const PrecisionRow& row) {  // Bytes of an activation.
    return std::abs(int(SizeOf(wanted->formats.activation)) - int(SizeOf(row.formats.activation)));
  };
  const PrecisionRow* nearest = nullptr;
  for (const PrecisionRow& row : rows) {
    if (row.RunsOn(kind) && (nearest == nullptr || missing(row) < missing(*nearest))) {
      nearest = &row;
    }
  }
  CHECK(nearest != nullptr) << "no precision on " << int(kind);
  return nearest->name;
}

const char* Name(PrecisionName precision) { return RowOf(precision).name; }

}  // namespace trainyard
