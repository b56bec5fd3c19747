// Converts jobs to and from their messages, with one function for each message.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/proto_fields.h"
#include "controller/jobs/job_fields.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::controller {

// Checks the spec as the trainer would (train/config). INVALID_ARGUMENT: violations with paths
// relative to the spec ("batch.global").
absl::StatusOr<std::shared_ptr<const Spec>> FromProto(const v1::JobSpec& spec);

// Returns the spec as protobuf's JSON, with the field names of the proto file. INVALID_ARGUMENT: a
// text is not UTF-8.
absl::StatusOr<std::string> SpecJson(const v1::JobSpec& spec);

v1::Job ToProto(const Job& job);

}  // namespace trainyard::controller
