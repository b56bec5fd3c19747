// A model's configuration as JSON, for the manifests of checkpoints and for the catalogue. Fields
// have the same names as in a spec, and each group of fields is an object.

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "models/arch/config.h"

namespace trainyard {

enum class Implied { kLeftOut, kWritten };  // Fields that files leave out (FieldRule::implied).

// Writes the family, then the family's fields in the order of its table.
nlohmann::ordered_json ToJson(const ModelConfig& config, Implied implied = Implied::kLeftOut);

// Does not check the limits of values; Validate does. INVALID_ARGUMENT: a field is missing or has
// another type. UNIMPLEMENTED: a later version wrote a field that this program does not know. The
// message names the field below "model.".
absl::StatusOr<ModelConfig> ModelFromJson(const nlohmann::ordered_json& json);

}  // namespace trainyard
