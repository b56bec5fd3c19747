#include "train/hf/tensor_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/half.h"
#include "common/status_macros.h"
#include "models/program/low_rank.h"
#include "train/hf/row_norm.h"

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

TensorWriter::TensorWriter(const Checkpoint& checkpoint, Storage& storage, bool merges)
    : checkpoint_(checkpoint),
      storage_(storage),
      merges_(merges),
      of_experts_(merges ? AdaptedRowsOfExperts(checkpoint.state().model)
                         : std::map<std::string, AdaptedRows>()) {}

absl::Status TensorWriter::WriteFile(const std::string& path,
                                     std::span<const ExportTensor> tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const ExportTensor& tensor : tensors) entries.push_back(tensor.entry());
  const std::string header = SafetensorsHeader(entries);
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage_.Create(path));
  RETURN_IF_ERROR(file->Append(header.data(), header.size()));
  for (const ExportTensor& tensor : tensors) {
    const bool one = tensor.layout.parameters.size() == 1;
    const HfParameter& first = tensor.layout.parameters.front();
    const bool whole = one && !first.transposed && first.matrices == 1;
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

// The same in f64.
absl::Status TensorWriter::LoadNumbers(const std::string& name, const Box& box,
                                       std::vector<double>& values) const {
  std::vector<char> bytes;
  RETURN_IF_ERROR(LoadValues(name, box, DType::kF64, bytes));
  values.resize(size_t(box.elements()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

void TensorWriter::Keep(const std::vector<double>& values, DType dtype) {
  values_.resize(values.size() * SizeOf(dtype));
  ConvertNumbers({values.data(), DType::kF64}, {values_.data(), dtype}, int64_t(values.size()));
}

absl::Status TensorWriter::CheckShape(const std::string& name, const Shape& wanted) const {
  const StoredTensor* const stored = checkpoint_.Find(name, TensorKind::kParameter);
  if (stored != nullptr && stored->shape == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint_.path(), ": tensor ", name, ": wanted the shape ", ToString(wanted),
                   ", found ", stored == nullptr ? "no such tensor" : ToString(stored->shape)));
}

AdaptedRows TensorWriter::AdapterOfWeight(const HfParameter& weight) const {
  const auto found = of_experts_.find(weight.name);
  if (found != of_experts_.end()) return found->second;
  return {.layer = std::string(ModuleOf(weight.name)), .outputs = weight.shape[0]};
}

absl::Status TensorWriter::Merge(const HfParameter& parameter, const Box& box, DType dtype) {
  const LoraNumbers& adapter = *checkpoint_.state().adapter;
  const auto [module, first_row, outputs] = AdapterOfWeight(parameter);
  const std::string down_name = module + kLowRankDown, up_name = module + kLowRankUp;
  const int64_t rank = adapter.rank, rows = box.extent[0], columns = box.extent[1];
  RETURN_IF_ERROR(CheckShape(down_name, {rank, parameter.shape[1]}));
  RETURN_IF_ERROR(CheckShape(up_name, {outputs, rank}));
  std::vector<double> w, a, b, magnitudes;
  RETURN_IF_ERROR(LoadNumbers(parameter.name, box, w));
  RETURN_IF_ERROR(LoadNumbers(down_name, WholeBox({rank, parameter.shape[1]}), a));
  RETURN_IF_ERROR(LoadNumbers(up_name, {{first_row + box.offset[0], 0}, {rows, rank}}, b));
  if (adapter.dora) {
    const std::string offset = module + kMagnitudeOffset;
    RETURN_IF_ERROR(CheckShape(offset, {parameter.shape[0]}));
    RETURN_IF_ERROR(LoadNumbers(offset, {{box.offset[0]}, {rows}}, magnitudes));
  }
  const double scale = adapter.scale();
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<double> sums(w.data() + row * columns, size_t(columns));
    if (adapter.dora) magnitudes[size_t(row)] += RowNorm(sums);
    for (int64_t k = 0; k < rank; ++k) {
      const double factor = scale * b[size_t(row * rank + k)];
      for (int64_t column = 0; column < columns; ++column) {
        sums[size_t(column)] += factor * a[size_t(k * columns + column)];
      }
    }
    if (!adapter.dora) continue;
    const double norm = RowNorm(sums);  // A row of norm 0 stays so.
    for (double& sum : sums) sum *= norm > 0 ? magnitudes[size_t(row)] / norm : 0;
  }
  Keep(w, dtype);
  return absl::OkStatus();
}

absl::Status TensorWriter::LoadMagnitudes(const HfParameter& offset, const Box& box, DType dtype) {
  const std::string weight = absl::StrCat(AdaptedModuleOf(offset.name), ".weight");
  const StoredTensor* const stored = checkpoint_.Find(weight, TensorKind::kParameter);
  const int64_t columns = stored == nullptr || stored->shape.rank() != 2 ? 1 : stored->shape[1];
  RETURN_IF_ERROR(CheckShape(weight, {offset.shape[0], columns}));
  std::vector<double> magnitudes, w;
  RETURN_IF_ERROR(LoadNumbers(offset.name, box, magnitudes));
  const int64_t first = box.offset[0], rows = box.extent[0];
  const int64_t chunk = std::clamp<int64_t>(kChunkElements / columns, 1, rows);
  for (int64_t row = 0; row < rows; row += chunk) {
    const int64_t count = std::min(chunk, rows - row);
    RETURN_IF_ERROR(LoadNumbers(weight, {{first + row, 0}, {count, columns}}, w));
    for (int64_t i = 0; i < count; ++i) {
      magnitudes[size_t(row + i)] += RowNorm({w.data() + i * columns, size_t(columns)});
    }
  }
  Keep(magnitudes, dtype);
  return absl::OkStatus();
}

absl::Status TensorWriter::Load(const HfParameter& parameter, const Box& box, HfDType dtype) {
  const DType loaded = Loaded(dtype);
  const size_t elements = size_t(box.elements());
  const auto merges = [&] {
    const std::string down = AdapterOfWeight(parameter).layer + kLowRankDown;
    return merges_ && checkpoint_.Find(down, TensorKind::kParameter) != nullptr;
  };
  if (merges()) {
    RETURN_IF_ERROR(Merge(parameter, box, loaded));
  } else if (absl::EndsWith(parameter.name, kMagnitudeOffset)) {
    RETURN_IF_ERROR(LoadMagnitudes(parameter, box, loaded));
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
