// A model's configuration as JSON: in checkpoints' manifests and in the catalogue. Fields have the
// names of a spec, and groups are objects.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "models/arch/config.h"

namespace trainyard {

// The family, then its fields in the order of its table.
nlohmann::ordered_json ToJson(const ModelConfig& config);

// Errors: INVALID_ARGUMENT names the field that is absent or of another type, below "model.".
// Values may be beyond their limits (Validate).
absl::StatusOr<ModelConfig> ModelFromJson(const nlohmann::ordered_json& json);

}  // namespace trainyard
