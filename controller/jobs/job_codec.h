// Converts a job to and from the form that the store keeps: versioned JSON of everything that
// changes, and of the facts.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

std::string EncodeFacts(const JobFacts& facts);
std::string EncodeJob(const Job& job);  // Without id, number and spec.

// DATA_LOSS: the text is not one that the functions above write. The message names the field.
absl::StatusOr<JobFacts> DecodeFacts(const std::string& text);
absl::StatusOr<Job> DecodeJob(const std::string& text);

}  // namespace trainyard::controller
