// Makes the complete configuration of a model from the choice in a spec: a preset with overrides,
// or an architecture given inline.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// The path of the fields that a message about the model should name: "model.overrides",
// "model.architecture", or "model" for a preset without overrides.
const char* ModelPath(const ModelChoice& choice);

// Returns null if no model can be made. The result is valid if no violation was added.
std::optional<ModelConfig> ResolveModel(const ModelChoice& choice, Violations& violations);

// INVALID_ARGUMENT: has the violations above.
absl::StatusOr<ModelConfig> ResolveModel(const ModelChoice& choice);

}  // namespace trainyard
