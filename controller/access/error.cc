#include "controller/access/error.h"

#include "common/text.h"
#include "common/violations.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::controller {
namespace {

constexpr int64_t kRetrySeconds = 1;

// Limits for the message and the details. Both are sent in the call's trailers, of which clients
// accept 8 KiB. The details contain the message again, and their encoding adds a third. Bytes of
// the message that are not ASCII become three bytes each.
constexpr size_t kMaxMessageBytes = 800;
constexpr size_t kMaxDetailBytes = 2800;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const std::string& type, const std::string& name) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(CutUtf8(ValidUtf8(status.message()), kMaxMessageBytes));
  if (message.size() < status.message().size()) message += " ...";
  google::rpc::Status details;
  details.set_code(int(status.code()));
  details.set_message(message);  // Clients compare it with the message of the call.
  if (const auto violations = Violations::FromStatus(status); !violations.empty()) {
    google::rpc::BadRequest request;
    for (const FieldViolation& violation : violations) {
      const std::string description = violation.Description();
      if (request.ByteSizeLong() + description.size() > kMaxDetailBytes) break;
      auto* field = request.add_field_violations();
      field->set_field(ValidUtf8(violation.field));
      field->set_description(ValidUtf8(description));
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
