// Converts between config.json of a Hugging Face directory and a model's configuration, by the
// table of the family (models/arch/hugging_face.h).

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/arch/registry.h"

namespace trainyard {

// Returns the configuration that config.json describes. INVALID_ARGUMENT: names each key with a
// value that is not supported, and each key that is not known.
absl::StatusOr<ModelConfig> ConfigFromHf(const nlohmann::json& json);

// Returns config.json of a model. Keys of `imported` that mean nothing for training, for example
// the number of the token that ends a text, are carried along. INVALID_ARGUMENT: the family has no
// such form, or names a field whose value the form cannot express.
absl::StatusOr<nlohmann::json> ConfigToHf(const ModelConfig& config,
                                          const nlohmann::json& imported);

// Returns the table of the configuration's family. INVALID_ARGUMENT: the family has none; the
// message lists those that have one.
absl::StatusOr<const HfTable*> FindHfTable(const ModelConfig& config);

}  // namespace trainyard
