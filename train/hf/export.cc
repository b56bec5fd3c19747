#include "train/hf/export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/half.h"
#include "common/json.h"
#include "common/python_json.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/places.h"
#include "train/hf/carried_files.h"
#include "train/hf/pending_directory.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr float kHalfOverflow = 65520;       // From here on, F16 rounds to infinity.
constexpr int64_t kChunkElements = 1 << 23;  // A tensor that lies whole is copied in such parts.

HfDType Stored(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return HfDType::kF64;
    case DType::kBF16:
      return HfDType::kBF16;
    default:
      return HfDType::kF32;
  }
}

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

// As config.json names it.
const char* TorchName(HfDType dtype) {
  switch (dtype) {
    case HfDType::kF64:
      return "float64";
    case HfDType::kBF16:
      return "bfloat16";
    case HfDType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

struct ExportTensor {
  HfLayout layout;
  HfDType dtype = HfDType::kF32;

  SafetensorsEntry entry() const { return {layout.tensor, dtype, layout.shape}; }
};

// Writes tensors of a checkpoint to files.
class TensorWriter {
 public:
  TensorWriter(const Checkpoint& checkpoint, Storage& storage)
      : checkpoint_(checkpoint), storage_(storage) {}

  Storage& storage() const { return storage_; }

  absl::Status WriteShard(const std::string& path, std::span<const ExportTensor> tensors) {
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

 private:
  // Reads the box in the tensor's dtype.
  absl::Status Load(const HfParameter& parameter, const Box& box, HfDType dtype) {
    const DType loaded = Loaded(dtype);
    const size_t elements = size_t(box.elements());
    values_.resize(elements * SizeOf(loaded));
    const TargetBox target{.name = parameter.name,
                           .dtype = loaded,
                           .global_shape = parameter.shape,
                           .box = box,
                           .data = values_.data(),
                           .conversion = Conversion::kRound};
    RETURN_IF_ERROR(checkpoint_.Load({&target, 1}));
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

  absl::Status WriteWhole(const ExportTensor& tensor, OutputFile& file) {
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

  absl::Status WriteSlices(const ExportTensor& tensor, OutputFile& file) {
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

  const Checkpoint& checkpoint_;
  Storage& storage_;
  std::vector<char> values_, slice_;
};

// The tensors of the directory, with their dtypes.
absl::StatusOr<std::vector<ExportTensor>> TensorsOf(const Checkpoint& checkpoint,
                                                    const HfTable& table,
                                                    const ExportOptions& options,
                                                    const std::optional<HfOrigin>& origin) {
  std::vector<ExportTensor> tensors;
  for (HfLayout& layout : HfLayoutsOf(checkpoint.state().model, table)) {
    const StoredTensor* stored = nullptr;
    for (const HfParameter& parameter : layout.parameters) {
      stored = checkpoint.Find(parameter.name, TensorKind::kParameter);
      if (stored != nullptr && stored->shape == parameter.shape) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint.path(), ": tensor ", parameter.name, ": wanted the shape ",
                       ToString(parameter.shape), ", found ",
                       stored == nullptr ? "no such tensor" : ToString(stored->shape)));
    }
    ExportTensor tensor{.layout = std::move(layout), .dtype = Stored(stored->dtype)};
    if (origin) tensor.dtype = origin->dtypes.Of(tensor.layout.tensor);
    if (options.dtype) tensor.dtype = *options.dtype;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Divides the tensors into shards, in their order. Returns the number of tensors in each.
std::vector<size_t> Divide(const std::vector<ExportTensor>& tensors, uint64_t shard_bytes) {
  std::vector<size_t> counts = {0};
  uint64_t bytes = 0;
  for (const ExportTensor& tensor : tensors) {
    const uint64_t more = tensor.entry().bytes();
    if (counts.back() > 0 && bytes + more > shard_bytes) {
      counts.push_back(0);
      bytes = 0;
    }
    ++counts.back();
    bytes += more;
  }
  return counts;
}

// Writes the shards, and an index if there are several.
absl::Status WriteShards(const std::string& path, const std::vector<ExportTensor>& tensors,
                         TensorWriter writer, const ExportOptions& options, Exported& exported) {
  const std::vector<size_t> counts = Divide(tensors, options.shard_bytes);
  Json weight_map = Json::object();
  size_t first = 0;
  for (size_t shard = 0; shard < counts.size(); ++shard) {
    const std::string name = counts.size() == 1 ? std::string(kHfWeightsName)
                                                : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                                  shard + 1, counts.size());
    const std::span<const ExportTensor> own(tensors.data() + first, counts[shard]);
    for (const ExportTensor& tensor : own) {
      weight_map[tensor.layout.tensor] = name;
      exported.size_bytes += tensor.entry().bytes();
    }
    RETURN_IF_ERROR(writer.WriteShard(absl::StrCat(path, "/", name), own));
    exported.files.push_back(name);
    first += counts[shard];
  }
  if (counts.size() == 1) return absl::OkStatus();
  const Json index = {{"metadata", {{"total_size", exported.size_bytes}}},
                      {"weight_map", weight_map}};
  return WriteFile(absl::StrCat(path, "/", kHfIndexName), JsonText(index, 2) + "\n",
                   writer.storage());
}

absl::StatusOr<Json> ConfigOf(const ModelConfig& model, const std::optional<HfOrigin>& origin) {
  if (!origin) return ConfigToHf(model, Json::object());
  return ConfigToHf(model, origin->config, origin->ignored);
}

// An imported config.json keeps the keys that it had. Without one, there are those of earlier and
// of later releases.
void SetDType(HfDType dtype, bool imported, Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!imported || config.contains(key)) config[key] = TorchName(dtype);
  }
}

}  // namespace

absl::StatusOr<Exported> ExportHf(const Checkpoint& checkpoint, const ExportOptions& options,
                                  Storage& storage) {
  const ModelConfig& model = checkpoint.state().model;
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(model));
  ASSIGN_OR_RETURN(const std::optional<HfOrigin> origin, FindOrigin(checkpoint.path()));
  ASSIGN_OR_RETURN(Json config, ConfigOf(model, origin));
  ASSIGN_OR_RETURN(const std::vector<ExportTensor> tensors,
                   TensorsOf(checkpoint, *table, options, origin));
  Exported exported;
  std::map<std::string, HfDType> dtypes;
  for (const ExportTensor& tensor : tensors) dtypes[tensor.layout.tensor] = tensor.dtype;
  exported.dtype = MostAndOthers(dtypes).most;
  SetDType(exported.dtype, origin.has_value(), config);
  if (origin) exported.changed_keys = ChangedKeys(origin->config, config);
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(options.to, storage));
  RETURN_IF_ERROR(
      WriteShards(pending.path(), tensors, TensorWriter(checkpoint, storage), options, exported));
  const std::string text =
      origin && origin->bare_words ? DumpPythonJson(config, 2) : JsonText(config, 2);
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(pending.path(), "/", kHfConfigName), text + "\n", storage));
  if (origin) {
    exported.origin = origin->path;
    exported.carried = CarriedOf(origin->files);
    for (const std::string& name : exported.carried) {
      RETURN_IF_ERROR(
          WriteFile(absl::StrCat(pending.path(), "/", name), origin->files.at(name), storage));
    }
  }
  exported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return exported;
}

}  // namespace trainyard
