// The one place where a call is let in or not: before gRPC has read the request, and before any
// handler. Whatever the proto files do not allow is refused.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/local_token.h"
#include "controller/access/methods.h"
#include "controller/metrics.h"

namespace trainyard::controller {

class Gate final : public grpc::AuthMetadataProcessor {
 public:
  // `metrics` outlives it.
  Gate(LocalToken token, ControllerMetrics& metrics);

  // UNAUTHENTICATED: no credential, or none that the controller knows. PERMISSION_DENIED: the
  // caller's roles do not include one that the method wants.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;
  bool IsBlocking() const override { return false; }

  const std::string& token() const { return token_.text(); }
  // For handlers: whom Process let in.
  Principal CallerOf(const grpc::CallbackServerContext& context) const;

 private:
  absl::StatusOr<Principal> Authenticate(const InputMetadata& metadata) const;
  grpc::Status Refuse(const absl::Status& status, const char* reason);

  const Methods methods_;
  const LocalToken token_;
  ControllerMetrics& metrics_;
};

}  // namespace trainyard::controller
