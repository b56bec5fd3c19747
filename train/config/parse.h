// Reads typed configs from YAML or JSON text. A pure function of the text: reads no files and no
// environment.
//
// Accepts protobuf JSON with original field names (64-bit integers as strings, enum values with or
// without their prefix, a oneof as the key that is set, null for a section or a list as absent),
// and the same in YAML. An unknown field is an error that names the nearest known field. A job with
// a `format` is one that a controller has resolved (resolved_job.h): no default is applied, and a
// missing field is an error.
//
// INVALID_ARGUMENT: lists every problem found, each with its field path ("batch.global").
// Violations::FromStatus turns the error back into a list. Text that is not YAML has one violation,
// of the field "", with line and column.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "train/config/trainer_config.h"
#include "train/config/yaml.h"

namespace trainyard {

// Checks types and the ranges of types only. Pass the result to Validate (validate.h).
absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text);

// The same, adding to a list of problems. A field that could not be read has its default.
JobConfig ParseJobConfig(const YamlNode& document, Violations& violations);

// Reads the whole file (docs/formats.md), or a job spec by itself. Violations of the job are under
// "job.". Checks `version` and `rank` completely, and the job as ParseJobConfig does.
TrainerConfig ParseTrainerConfig(absl::string_view text, Violations& violations);

// The same for what a person submits, in which `format` is an unknown field.
JobConfig ParseSpec(const YamlNode& document, Violations& violations);

// Adds what a spec, or the spec in a trainer's config, lacks of its optimizer. A learning rate has
// no default, and later checks would only find that it is 0.
void FindMissing(const YamlNode& document, Violations& violations);

// Returns nullopt after adding a violation of the field "" if the text is not YAML.
std::optional<YamlNode> ParseDocument(absl::string_view text, Violations& violations);

}  // namespace trainyard
