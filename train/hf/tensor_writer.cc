#include "train/hf/tensor_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/half.h"
#include "common/status_macros.h"
#include "models/program/low_rank.h"

namespace trainyard {
namespace {

constexpr float kHalfOverflow = 65520;       // From here on, F16 rounds to infinity.
constexpr int64_t kChunkElements = 1 << 23;  // A tensor that lies whole is copied in such parts.

// The dtype in which a checkpoint's numbers are loaded to be written as `dtype`.
DType Loaded(HfDType dtype) {
  switch (dtype) {
    case HfDType::kF64:
      return DType::kF64;
    case HfDType::kBF16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

}  // namespace

HfDType HfDTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return HfDType::kF64;
    case DType::kBF16:
      return HfDType::kBF16;
    default:
      return HfDType::kF32;
  }
}

absl::Status TensorWriter::WriteFile(const std::string& path,
                                     std::span<const ExportTensor> tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const ExportTensor& tensor : tensors) entries.push_back(tensor.entry());
  const std::string header = SafetensorsHeader(entries);
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage_.Create(path));
  RETURN_IF_ERROR(file->Append(header.data(), header.size()));
  for (const ExportTensor& tensor : tensors) {
    const bool one = tensor.layout.parameters.size() == 1;
    const bool whole = one && !tensor.layout.parameters.front().transposed;
    RETURN_IF_ERROR(whole ? WriteWhole(tensor, *file) : WriteSlices(tensor, *file));
  }
  return file->Sync();
}

// Reads the box of the checkpoint's tensor, whose shape the caller has compared.
absl::Status TensorWriter::LoadValues(const std::string& name, const Box& box, DType dtype,
                                      std::vector<char>& values) const {
  values.resize(size_t(box.elements()) * SizeOf(dtype));
  const TargetBox target{.name = name,
                         .dtype = dtype,
                         .global_shape = checkpoint_.Find(name, TensorKind::kParameter)->shape,
                         .box = box,
                         .data = values.data(),
                         .conversion = Conversion::kRound};
  return checkpoint_.Load({&target, 1});
}

absl::Status TensorWriter::Merge(const HfParameter& parameter, const Box& box, DType dtype) {
  const std::string module(ModuleOf(parameter.name));
  const std::string down_name = module + kLowRankDown, up_name = module + kLowRankUp;
  const StoredTensor* const up_stored = checkpoint_.Find(up_name, TensorKind::kParameter);
  const int64_t rank = checkpoint_.state().adapter->rank;
  const int64_t rows = box.extent[0], columns = box.extent[1];
  const StoredTensor& down_stored = *checkpoint_.Find(down_name, TensorKind::kParameter);
  if (up_stored == nullptr || up_stored->shape != Shape({parameter.shape[0], rank}) ||
      down_stored.shape != Shape({rank, parameter.shape[1]})) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint_.path(), ": wanted adapters of rank ",
                                                   rank, " beside ", parameter.name,
                                                   ", found other shapes"));
  }
  std::vector<char> base, down, up;
  RETURN_IF_ERROR(LoadValues(parameter.name, box, DType::kF64, base));
  RETURN_IF_ERROR(LoadValues(down_name, WholeBox(down_stored.shape), DType::kF64, down));
  const Box up_rows{.offset = {box.offset[0], 0}, .extent = {rows, rank}};
  RETURN_IF_ERROR(LoadValues(up_name, up_rows, DType::kF64, up));
  double* const w = reinterpret_cast<double*>(base.data());
  const double* const a = reinterpret_cast<const double*>(down.data());
  const double* const b = reinterpret_cast<const double*>(up.data());
  const double scale = checkpoint_.state().adapter->scale();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < rank; ++k) {
      const double factor = scale * b[row * rank + k];
      for (int64_t column = 0; column < columns; ++column) {
        w[row * columns + column] += factor * a[k * columns + column];
      }
    }
  }
  values_.resize(size_t(box.elements()) * SizeOf(dtype));
  ConvertNumbers({base.data(), DType::kF64}, {values_.data(), dtype}, box.elements());
  return absl::OkStatus();
}

absl::Status TensorWriter::Load(const HfParameter& parameter, const Box& box, HfDType dtype) {
  const DType loaded = Loaded(dtype);
  const size_t elements = size_t(box.elements());
  const std::string adapter = absl::StrCat(ModuleOf(parameter.name), kLowRankDown);
  if (merges_ && checkpoint_.Find(adapter, TensorKind::kParameter) != nullptr) {
    RETURN_IF_ERROR(Merge(parameter, box, loaded));
  } else {
    RETURN_IF_ERROR(LoadValues(parameter.name, box, loaded, values_));
  }
  if (dtype != HfDType::kF16) return absl::OkStatus();
  const float* const from = reinterpret_cast<const float*>(values_.data());
  std::vector<uint16_t> halves(elements);
  std::transform(from, from + elements, halves.begin(), FloatToHalf);
  for (size_t i = 0; i < elements; ++i) {
    if (!std::isfinite(from[i]) || std::abs(from[i]) < kHalfOverflow) continue;
    return absl::InvalidArgumentError(absl::StrCat(parameter.name, ": wanted numbers below ",
                                                   kHalfOverflow, " for F16, found ", from[i],
                                                   "; BF16 has the range of F32"));
  }
  values_.resize(elements * sizeof(uint16_t));
  std::memcpy(values_.data(), halves.data(), values_.size());
  return absl::OkStatus();
}

absl::Status TensorWriter::WriteWhole(const ExportTensor& tensor, OutputFile& file) {
  const HfParameter& parameter = tensor.layout.parameters.front();
  const int64_t rows = parameter.shape[0], columns = parameter.shape.elements() / rows;
  const int64_t chunk = std::clamp<int64_t>(kChunkElements / columns, 1, rows);
  for (int64_t row = 0; row < rows; row += chunk) {
    Box box = WholeBox(parameter.shape);
    box.offset = box.offset.With(0, row);
    box.extent = box.extent.With(0, std::min(chunk, rows - row));
    RETURN_IF_ERROR(Load(parameter, box, tensor.dtype));
    RETURN_IF_ERROR(file.Append(values_.data(), values_.size()));
  }
  return absl::OkStatus();
}

absl::Status TensorWriter::WriteSlices(const ExportTensor& tensor, OutputFile& file) {
  const HfLayout& layout = tensor.layout;
  const size_t element = SizeOf(tensor.dtype);
  slice_.resize(size_t(layout.slice_elements()) * element);
  for (const HfParameter& parameter : layout.parameters) {
    RETURN_IF_ERROR(Load(parameter, WholeBox(parameter.shape), tensor.dtype));
    PutRows(parameter, element, values_.data(), slice_.data());
    if (parameter.part + 1 < parameter.parts) continue;
    RETURN_IF_ERROR(file.Append(slice_.data(), slice_.size()));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
