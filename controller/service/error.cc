#include "controller/service/error.h"

#include "common/violations.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::controller {
namespace {

constexpr int64_t kRetrySeconds = 1;

// Both travel in the call's trailers, of which clients take 8 KiB, details growing by a third.
constexpr size_t kMaxMessageBytes = 1500;
constexpr size_t kMaxDetailBytes = 3000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const std::string& type, const std::string& name) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().substr(0, kMaxMessageBytes));
  if (message.size() < status.message().size()) message += " ...";
  google::rpc::Status details;
  details.set_code(int(status.code()));
  if (const auto violations = Violations::FromStatus(status); !violations.empty()) {
    google::rpc::BadRequest request;
    for (const FieldViolation& violation : violations) {
      if (request.ByteSizeLong() + violation.description.size() > kMaxDetailBytes) break;
      auto* field = request.add_field_violations();
      field->set_field(violation.field);
      field->set_description(violation.description);
    }
    details.add_details()->PackFrom(request);
  }
  if (absl::IsNotFound(status) && !type.empty()) {
    google::rpc::ResourceInfo resource;
    resource.set_resource_type(type);
    resource.set_resource_name(name);
    resource.set_description(message);
    details.add_details()->PackFrom(resource);
  }
  if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(grpc::StatusCode(status.code()), message, details.SerializeAsString());
}

}  // namespace trainyard::controller
