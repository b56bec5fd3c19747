// Converts between config.json of a Hugging Face directory and a model's configuration, by the
// table of the family (models/arch/hugging_face.h).

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/arch/registry.h"

namespace trainyard {

// Returns the configuration that config.json describes. `ignored` are keys, as messages name them,
// that a user has said change nothing. INVALID_ARGUMENT: names each key with a value that is not
// supported, each key that is not known, and each ignored one that is known or is not there.
absl::StatusOr<ModelConfig> ConfigFromHf(const nlohmann::json& json,
                                         const std::vector<std::string>& ignored = {});

// Returns config.json of a model. If the model came from a directory, whose config.json is
// `imported` and was read with these `ignored` keys, all keys are those of `imported`, but for
// those that the model's changes need. INVALID_ARGUMENT: the family has no such form, or names a
// field whose value the form cannot express.
absl::StatusOr<nlohmann::json> ConfigToHf(const ModelConfig& config, const nlohmann::json& imported,
                                          const std::vector<std::string>& ignored = {});

// Returns the keys at the top that only one of the two has, or that have other values.
std::vector<std::string> ChangedKeys(const nlohmann::json& imported,
                                     const nlohmann::json& exported);

// Returns the table of the configuration's family. INVALID_ARGUMENT: the family has none; the
// message lists those that have one.
absl::StatusOr<const HfTable*> FindHfTable(const ModelConfig& config);

}  // namespace trainyard
