// From a spec's choice of a model (a preset with overrides, or an architecture inline) to its
// complete configuration.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// The path of the fields that a message about the resolved model should name: "model.overrides",
// "model.architecture", or "model" for a bare preset.
const char* ModelPath(const ModelChoice& choice);

// Null where no model can be made of it; what is returned is valid if nothing was added.
std::optional<ModelConfig> ResolveModel(const ModelChoice& choice, Violations& violations);

// INVALID_ARGUMENT with the violations above.
absl::StatusOr<ModelConfig> ResolveModel(const ModelChoice& choice);

}  // namespace trainyard
