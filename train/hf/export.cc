#include "train/hf/export.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json.h"
#include "common/python_json.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/places.h"
#include "train/hf/carried_files.h"
#include "train/hf/export_adapter.h"
#include "train/hf/pending_directory.h"
#include "train/hf/tensor_writer.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

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
    ExportTensor tensor{.layout = std::move(layout), .dtype = HfDTypeOf(stored->dtype)};
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
    RETURN_IF_ERROR(writer.WriteFile(absl::StrCat(path, "/", name), own));
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
  const std::optional<LoraNumbers>& adapter = checkpoint.state().adapter;
  if (adapter && !options.merge) return ExportAdapter(checkpoint, options, storage);
  if (options.merge && !adapter) {
    return absl::InvalidArgumentError(
        absl::StrCat("--merge: wanted a checkpoint with an adapter, found none in ",
                     checkpoint.path(), ", which is exported as a whole without it"));
  }
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
  RETURN_IF_ERROR(SetTokensOfTokenizer(checkpoint.path(), origin, config));
  if (origin) exported.changed_keys = ChangedKeys(origin->config, config);
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(options.to, storage));
  RETURN_IF_ERROR(WriteShards(pending.path(), tensors,
                              TensorWriter(checkpoint, storage, options.merge), options, exported));
  const std::string text =
      origin && origin->bare_words ? DumpPythonJson(config, 2) : JsonText(config, 2);
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(pending.path(), "/", kHfConfigName), text + "\n", storage));
  if (origin) exported.origin = origin->path;
  ASSIGN_OR_RETURN(exported.carried,
                   WriteCarried(checkpoint.path(), origin, pending.path(), storage));
  exported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return exported;
}

}  // namespace trainyard
