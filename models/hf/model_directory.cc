#include "models/hf/model_directory.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/files.h"
#include "common/json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr uint64_t kMaxIndexBytes = 256 << 20;

absl::StatusOr<Json> ParseObject(const std::string& path, const std::string& text) {
  absl::StatusOr<Json> json = ParsePythonJson(text);
  if (!json.ok()) return absl::DataLossError(absl::StrCat(path, ": ", json.status().message()));
  if (json->is_object()) return json;
  return absl::DataLossError(absl::StrCat(path, ": wanted a JSON object, found another value"));
}

// The error for a directory without safetensors. It names the weights that are there, if any.
absl::Status NoWeights(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCanonical(path));
  for (const std::string& name : names) {
    const bool pickle = absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".pt") ||
                        absl::EndsWith(name, ".pth") || absl::EndsWith(name, ".ckpt") ||
                        absl::EndsWith(name, ".pkl");
    if (pickle) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, "/", name,
          ": wanted safetensors, found a pickle file, which may run any program "
          "while it is read; save the model with save_pretrained(..., safe_serialization=True)"));
    }
  }
  return absl::NotFoundError(
      absl::StrCat(path, ": wanted ", kHfWeightsName, " or ", kHfIndexName, ", found neither"));
}

// A name in an index must not lead out of the directory.
bool LegalShardName(absl::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos && absl::EndsWith(name, ".safetensors");
}

}  // namespace

absl::StatusOr<std::string> ReadHfFile(const std::string& path, uint64_t limit_bytes,
                                       const Roots& roots) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, roots));
  if (file.size() > limit_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": wanted at most ", limit_bytes, " bytes, found ", file.size()));
  }
  std::string text(size_t(file.size()), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  return text;
}

absl::StatusOr<HfConfigText> ReadHfConfigJson(const std::string& directory, const Roots& roots) {
  const std::string config = absl::StrCat(directory, "/", kHfConfigName);
  if (!Exists(config) && Exists(absl::StrCat(directory, "/manifest.json"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": wanted a Hugging Face model directory, found a Trainyard checkpoint; a job ",
        "begins with its weights if its spec has init_from: ", directory));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadHfFile(config, kMaxConfigBytes, roots));
  ASSIGN_OR_RETURN(Json json, ParseObject(config, text));
  return HfConfigText{std::move(json), !ParseUniqueJson(text).ok()};
}

absl::StatusOr<ModelDirectory> ModelDirectory::Open(const std::string& path, const Roots& roots) {
  ModelDirectory directory;
  ASSIGN_OR_RETURN(directory.path_, roots.FindDirectory(path));
  const auto at = [&](const char* name) { return absl::StrCat(directory.path_, "/", name); };
  ASSIGN_OR_RETURN(directory.config_, ReadHfConfigJson(directory.path_, roots));
  const bool one = Exists(at(kHfWeightsName)), sharded = Exists(at(kHfIndexName));
  if (one && sharded) {
    return absl::InvalidArgumentError(absl::StrCat(directory.path_, ": wanted ", kHfWeightsName,
                                                   " or ", kHfIndexName, ", found both"));
  }
  if (one) {
    RETURN_IF_ERROR(directory.AddShard(kHfWeightsName, roots));
    return directory;
  }
  if (!sharded) return NoWeights(directory.path_);
  ASSIGN_OR_RETURN(const std::string text, ReadHfFile(at(kHfIndexName), kMaxIndexBytes, roots));
  ASSIGN_OR_RETURN(const Json index, ParseObject(at(kHfIndexName), text));
  RETURN_IF_ERROR(directory.OpenShards(index, roots));
  return directory;
}

absl::Status ModelDirectory::AddShard(const std::string& name, const Roots& roots) {
  ASSIGN_OR_RETURN(SafetensorsFile file,
                   SafetensorsFile::Open(absl::StrCat(path_, "/", name), roots));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const auto& [tensor, info] : files_.back()->tensors()) {
    const auto [it, added] = tensors_.try_emplace(tensor, HfTensor{files_.back().get(), info});
    if (added) continue;
    return absl::DataLossError(absl::StrCat(files_.back()->path(), ": tensor ", Shown(tensor),
                                            ": is in ", it->second.file->path(), ", too"));
  }
  return absl::OkStatus();
}

absl::Status ModelDirectory::OpenShards(const Json& index, const Roots& roots) {
  const std::string index_path = absl::StrCat(path_, "/", kHfIndexName);
  const auto damaged = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat(index_path, ": ", what...));
  };
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return damaged("wanted weight_map, an object with the file of each tensor");
  }
  std::map<std::string, std::string> first_of;  // A tensor of each shard, for messages.
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !LegalShardName(shard.get<std::string>())) {
      return damaged("tensor ", Shown(tensor), ": wanted a file NAME.safetensors of the directory",
                     ", found ", shard.is_string() ? Shown(shard.get<std::string>()) : "no text");
    }
    first_of.try_emplace(shard.get<std::string>(), tensor);
  }
  for (const auto& [shard, tensor] : first_of) {
    if (!Exists(absl::StrCat(path_, "/", shard))) {
      return absl::NotFoundError(absl::StrCat(index_path, ": tensor ", Shown(tensor),
                                              ": the shard ", shard, " is missing"));
    }
    RETURN_IF_ERROR(AddShard(shard, roots));
  }
  for (const auto& [tensor, shard] : map->items()) {
    const HfTensor* const found = Find(tensor);
    const std::string wanted = absl::StrCat(path_, "/", shard.get<std::string>());
    if (found != nullptr && found->file->path() == wanted) continue;
    return damaged("tensor ", Shown(tensor), ": wanted it in ", wanted, ", as weight_map says, ",
                   "found it ", found == nullptr ? "nowhere" : "in " + found->file->path());
  }
  for (const auto& [tensor, found] : tensors_) {
    if (map->contains(tensor)) continue;
    return damaged("tensor ", Shown(tensor), " of ", found.file->path(), ": weight_map lacks it");
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelDirectory::FileNames() const {
  std::vector<std::string> names = {kHfConfigName};
  std::vector<std::string> shards;
  for (const auto& file : files_) shards.push_back(file->path().substr(path_.size() + 1));
  if (shards != std::vector<std::string>{kHfWeightsName}) names.push_back(kHfIndexName);
  names.insert(names.end(), shards.begin(), shards.end());
  return names;
}

const HfTensor* ModelDirectory::Find(absl::string_view name) const {
  const auto it = tensors_.find(std::string(name));
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace trainyard
