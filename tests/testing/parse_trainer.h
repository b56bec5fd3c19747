// Reads a trainer's config where a test wants the config or the error.

#pragma once

#include "absl/status/statusor.h"
#include "train/config/parse.h"

namespace trainyard {

// INVALID_ARGUMENT: the violations, one a line.
inline absl::StatusOr<TrainerConfig> ParseTrainerConfig(absl::string_view text) {
  Violations violations;
  TrainerConfig config = ParseTrainerConfig(text, violations);
  if (!violations.empty()) return violations.ToStatus();
  return config;
}

}  // namespace trainyard
