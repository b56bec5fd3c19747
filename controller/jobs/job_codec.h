// A job as the store keeps it: versioned JSON of everything that changes, and of the facts.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

std::string EncodeFacts(const JobFacts& facts);
std::string EncodeJob(const Job& job);  // Without id, number and spec.

// DATA_LOSS: not what the functions above write; names the field.
absl::StatusOr<JobFacts> DecodeFacts(const std::string& text);
absl::StatusOr<Job> DecodeJob(const std::string& text);

}  // namespace trainyard::controller
