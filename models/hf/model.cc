#include "models/hf/model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "models/hf/config.h"

namespace trainyard {
namespace {

absl::StatusOr<ModelConfig> ConfigOf(const std::string& directory, const nlohmann::json& json,
                                     const std::vector<std::string>& ignored) {
  absl::StatusOr<ModelConfig> config = ConfigFromHf(json, ignored);
  if (config.ok()) return config;
  return absl::Status(config.status().code(), absl::StrCat(directory, "/", kHfConfigName, ":\n",
                                                           config.status().message()));
}

}  // namespace

absl::StatusOr<HfModel> HfModel::Open(const std::string& path, const Roots& roots,
                                      const std::vector<std::string>& ignored) {
  ASSIGN_OR_RETURN(ModelDirectory directory, ModelDirectory::Open(path, roots));
  ASSIGN_OR_RETURN(ModelConfig config, ConfigOf(directory.path(), directory.config(), ignored));
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(config));
  ASSIGN_OR_RETURN(HfWeights weights, HfWeights::Find(directory, config, *table));
  return HfModel{std::move(directory), std::move(config), std::move(weights), ignored};
}

absl::StatusOr<ModelConfig> ReadHfConfig(const std::string& path,
                                         const std::vector<std::string>& ignored) {
  const Roots roots;
  ASSIGN_OR_RETURN(const std::string directory, roots.FindDirectory(path));
  ASSIGN_OR_RETURN(const HfConfigText config, ReadHfConfigJson(directory, roots));
  return ConfigOf(directory, config.json, ignored);
}

}  // namespace trainyard
