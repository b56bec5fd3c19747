// The one place where a Status becomes a gRPC status with google.rpc details: BadRequest for
// violations, ResourceInfo for a resource that was not found, RetryInfo for calls that may be tried
// again.

#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace trainyard::controller {

// `type` and `name` describe the resource that NOT_FOUND is about. Empty: there is no resource.
grpc::Status ToGrpc(const absl::Status& status, const std::string& type = "",
                    const std::string& name = "");

}  // namespace trainyard::controller
