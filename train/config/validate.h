// Finds everything that is wrong with a job and can be seen without opening a file. The controller
// calls this on submit, and the trainer at start.

#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/declared.h"
#include "common/violations.h"
#include "train/config/trainer_config.h"
#include "train/config/yaml.h"

namespace trainyard {

inline constexpr int64_t kMaxDevices = DeclaredAt("devices").whole->most;
inline constexpr int64_t kMaxGlobalBatch = DeclaredAt("batch.global").whole->most;  // Sequences.
inline constexpr int64_t kMaxMicroBatchTokens = 1 << 28;  // Tokens that a rank computes at once.
// Number of choices of experts by the tokens of a micro-batch on a rank. Experts have memory for
// twice as many rows (RecordOptions::expert_rows), which are numbered in i32.
inline constexpr int64_t kMaxExpertSlots = (1 << 30) - 1;
inline constexpr size_t kMaxNameLength = 63;
inline constexpr size_t kMaxPathLength = 1'024;
inline constexpr size_t kMaxLabels = 32;
inline constexpr size_t kMaxLabelLength = 255;

// Adds one violation for each problem, with the field's path, what was wanted, what was found, and
// the nearest legal value.
void Validate(const JobConfig& job, Violations& violations);

// Parses (parse.h) and validates. INVALID_ARGUMENT: lists the problems of both.
absl::StatusOr<JobConfig> ParseAndValidateJob(absl::string_view text);
JobConfig ParseAndValidateSpec(const YamlNode& document, Violations& violations);  // See ParseSpec.

// The same for a trainer's config. Also checks that the number of ranks is that of the job's
// devices, or one if there is no `rank`. Paths of the job begin with "job.". A field that could not
// be read has its default.
TrainerConfig ParseAndValidateTrainer(absl::string_view text, Violations& violations);

}  // namespace trainyard
