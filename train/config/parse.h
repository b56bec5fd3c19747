// YAML or JSON text to typed configs. A pure function of the text: no files, no environment.
//
// Accepted as they are: protobuf JSON with original field names (64-bit integers as strings, enum
// values with or without their prefix, a oneof as the key that is set, null as absent), and the
// same in YAML. Strict otherwise: an unknown field is an error that names the nearest known one.
// A job with a `format` is one that a controller has resolved (resolved_job.h): no default is
// applied, and a field that it lacks is an error.
//
// Errors: INVALID_ARGUMENT that Violations::FromStatus turns back into a list of every problem
// found, each with its field path ("batch.global"); for text that is no YAML, one violation of the
// field "" with line and column.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "train/config/trainer_config.h"
#include "train/config/yaml.h"

namespace trainyard {

// Types and ranges of the types only: pass the result to Validate (validate.h).
absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text);

// The whole file of docs/formats.md, or a job spec by itself; violations of the job are under
// "job.". Checks `version`, and `rank` completely; the job as ParseJobConfig does.
absl::StatusOr<TrainerConfig> ParseTrainerConfig(absl::string_view text);

// The same, adding to a list of problems; what could not be read has its default.
JobConfig ParseJobConfig(const YamlNode& document, Violations& violations);
TrainerConfig ParseTrainerConfig(absl::string_view text, Violations& violations);

// Null after adding a violation of the field "": the text is no YAML.
std::optional<YamlNode> ParseDocument(absl::string_view text, Violations& violations);

}  // namespace trainyard
