// A Hugging Face model directory: config.json, and the tensors in model.safetensors or in the
// shards that model.safetensors.index.json lists.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"
#include "models/hf/safetensors.h"

namespace trainyard {

inline constexpr char kHfConfigName[] = "config.json";
inline constexpr char kHfWeightsName[] = "model.safetensors";
inline constexpr char kHfIndexName[] = "model.safetensors.index.json";

// Reads all of a regular file below the roots. FAILED_PRECONDITION: it has more than `limit_bytes`.
absl::StatusOr<std::string> ReadHfFile(const std::string& path, uint64_t limit_bytes,
                                       const Roots& roots);
struct HfConfigText {
  nlohmann::json json;  // An object, with numbers that are not finite as ParsePythonJson has them.
  bool bare_words = false;  // The text has such numbers as the bare words of Python.
};
// Reads config.json of a directory, whose path is canonical. DATA_LOSS: it is no JSON object.
// INVALID_ARGUMENT: the directory is a checkpoint of ours.
absl::StatusOr<HfConfigText> ReadHfConfigJson(const std::string& directory, const Roots& roots);

// A tensor of the directory. A view.
struct HfTensor {
  const SafetensorsFile* file = nullptr;
  SafetensorsTensor info;

  absl::Status Read(uint64_t offset, void* out, size_t bytes) const {
    return file->Read(info, offset, out, bytes);
  }
};

// Immutable, thread-safe.
class ModelDirectory {
 public:
  // Reads config.json, the index and the headers of all shards. Reads no tensor. Errors name the
  // file, and the tensor if it is about one:
  // - NOT_FOUND: the directory, config.json or a shard is not there.
  // - INVALID_ARGUMENT: the weights are in another format (pickle files), or in two places.
  // - DATA_LOSS: a file is damaged, or the index contradicts a shard.
  static absl::StatusOr<ModelDirectory> Open(const std::string& path, const Roots& roots = Roots());

  const std::string& path() const { return path_; }  // Canonical.
  // The files that Open has read, below that path.
  std::vector<std::string> FileNames() const;
  const nlohmann::json& config() const { return config_.json; }  // An object.
  bool config_has_bare_words() const { return config_.bare_words; }
  const std::map<std::string, HfTensor>& tensors() const { return tensors_; }
  const HfTensor* Find(absl::string_view name) const;  // Null: there is none.

 private:
  absl::Status OpenShards(const nlohmann::json& index, const Roots& roots);
  absl::Status AddShard(const std::string& name, const Roots& roots);

  std::string path_;
  HfConfigText config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // Where tensors_ point to.
  std::map<std::string, HfTensor> tensors_;
};

}  // namespace trainyard
