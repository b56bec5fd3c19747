#include "train/hf/carried_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Only names that are known: a directory may have anything else in it, programs too.
constexpr const char* kCarried[] = {
    "added_tokens.json", "chat_template.jinja",     "chat_template.json", "generation_config.json",
    "merges.txt",        "special_tokens_map.json", "spiece.model",       "tokenizer.json",
    "tokenizer.model",   "tokenizer_config.json",   "vocab.json",         "vocab.txt"};
constexpr uint64_t kMaxCarriedBytes = 256 << 20;
constexpr char kImportName[] = "import.json";
constexpr int kVersion = 1;
constexpr int kMostGenerations = 64;  // Of jobs that began with each other's parameters.

std::optional<HfDType> TypeNamed(const Json& json) {
  for (const HfDType dtype : {HfDType::kF64, HfDType::kF32, HfDType::kBF16, HfDType::kF16}) {
    if (json == Name(dtype)) return dtype;
  }
  return std::nullopt;
}

Json ToJson(const HfDTypes& dtypes) {
  Json others = Json::object();
  for (const auto& [tensor, dtype] : dtypes.others) others[tensor] = Name(dtype);
  return {{"version", kVersion}, {"dtype", Name(dtypes.most)}, {"others", others}};
}

absl::StatusOr<HfDTypes> ParseDTypes(const std::string& text) {
  const auto damaged = [] { return absl::DataLossError("damaged, or of a later version"); };
  const Json json = ParseUniqueJson(text);
  if (!json.is_object() || json.value("version", Json()) != kVersion) return damaged();
  const Json others = json.value("others", Json());
  const std::optional<HfDType> most = TypeNamed(json.value("dtype", Json()));
  if (!most || !others.is_object()) return damaged();
  HfDTypes dtypes{.most = *most};
  for (const auto& [tensor, name] : others.items()) {
    const std::optional<HfDType> dtype = TypeNamed(name);
    if (!dtype) return damaged();
    dtypes.others[tensor] = *dtype;
  }
  return dtypes;
}

absl::StatusOr<HfOrigin> ReadOrigin(const std::string& path) {
  HfOrigin origin{.path = path, .config = {}, .dtypes = {}};
  const std::string config = absl::StrCat(path, "/", kHfConfigName),
                    import = absl::StrCat(path, "/", kImportName);
  ASSIGN_OR_RETURN(const std::string config_text, ReadRegularFile(config));
  ASSIGN_OR_RETURN(const std::string import_text, ReadRegularFile(import, kMaxCarriedBytes));
  origin.config = ParseUniqueJson(config_text);
  if (!origin.config.is_object()) {
    return absl::DataLossError(absl::StrCat(config, ": wanted a JSON object"));
  }
  absl::StatusOr<HfDTypes> dtypes = ParseDTypes(import_text);
  if (!dtypes.ok()) {
    return absl::DataLossError(absl::StrCat(import, ": ", dtypes.status().message()));
  }
  origin.dtypes = *std::move(dtypes);
  return origin;
}

}  // namespace

HfDType HfDTypes::Of(const std::string& tensor) const {
  const auto it = others.find(tensor);
  return it == others.end() ? most : it->second;
}

HfDTypes MostAndOthers(const std::map<std::string, HfDType>& all) {
  std::map<HfDType, int64_t> counts;
  for (const auto& [tensor, dtype] : all) ++counts[dtype];
  HfDTypes dtypes;
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  if (!counts.empty()) {
    dtypes.most = std::max_element(counts.begin(), counts.end(), fewer)->first;
  }
  for (const auto& [tensor, dtype] : all) {
    if (dtype != dtypes.most) dtypes.others[tensor] = dtype;
  }
  return dtypes;
}

absl::Status WriteFile(const std::string& path, absl::string_view text, Storage& storage) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(path));
  RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  return file->Sync();
}

absl::StatusOr<std::vector<std::string>> CarryFiles(const std::string& from, const std::string& to,
                                                    Storage& storage) {
  std::vector<std::string> names;
  for (const char* name : kCarried) {
    const std::string path = absl::StrCat(from, "/", name);
    if (!Exists(path)) continue;
    ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxCarriedBytes));
    RETURN_IF_ERROR(WriteFile(absl::StrCat(to, "/", name), text, storage));
    names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> KeepOrigin(const ModelDirectory& directory,
                                                    const HfDTypes& dtypes,
                                                    const std::string& checkpoint,
                                                    Storage& storage) {
  const std::string path = absl::StrCat(checkpoint, "/", kCarriedName);
  RETURN_IF_ERROR(storage.MakeDirectory(path));
  ASSIGN_OR_RETURN(std::vector<std::string> names, CarryFiles(directory.path(), path, storage));
  RETURN_IF_ERROR(WriteFile(absl::StrCat(path, "/", kHfConfigName),
                            directory.config().dump(2) + "\n", storage));
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(path, "/", kImportName), ToJson(dtypes).dump(1) + "\n", storage));
  RETURN_IF_ERROR(storage.SyncDirectory(path));
  return names;
}

absl::StatusOr<std::optional<HfOrigin>> FindOrigin(const std::string& checkpoint) {
  std::filesystem::path at = checkpoint;
  for (int i = 0; i < kMostGenerations; ++i) {
    const std::string path = absl::StrCat(at.string(), "/", kCarriedName);
    if (Exists(path)) {
      ASSIGN_OR_RETURN(HfOrigin origin, ReadOrigin(path));
      return origin;
    }
    ASSIGN_OR_RETURN(const std::optional<InitialisedFrom> from,
                     ReadInitialisedFrom(at.parent_path().parent_path().string(), std::nullopt));
    if (!from) return std::nullopt;
    at = from->path;
  }
  return std::nullopt;
}

}  // namespace trainyard
