// The one place where a Status becomes a gRPC status with google.rpc details: BadRequest for
// violations, ResourceInfo for what was not found, RetryInfo for what may be tried again.

#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace trainyard::controller {

// `job_id`: what NOT_FOUND is about; empty: no resource.
grpc::Status ToGrpc(const absl::Status& status, const std::string& type = "",
                    const std::string& name = "");

}  // namespace trainyard::controller
