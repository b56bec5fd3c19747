#include "controller/access/gate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "controller/service/error.h"

namespace trainyard::controller {
namespace {

// "submitter" for ROLE_SUBMITTER.
std::string NameOf(v1::Role role) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Role_Name(role), "ROLE_"));
}

std::string NamesOf(const std::set<v1::Role>& roles) {
  return absl::StrJoin(roles, " and ",
                       [](std::string* out, v1::Role role) { absl::StrAppend(out, NameOf(role)); });
}

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

Gate::Gate(LocalToken token, ControllerMetrics& metrics)
    : token_(std::move(token)), metrics_(metrics) {}

grpc::Status Gate::Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                           OutputMetadata*) {
  const auto path = metadata.find(":path");
  const v1::Access* const method =
      path == metadata.end() ? nullptr : methods_.Find(View(path->second));
  const absl::StatusOr<Principal> caller = Authenticate(metadata);
  if (!caller.ok()) return Refuse(caller.status(), "credential");
  // Only who is known learns which methods there are.
  if (method == nullptr) {
    return Refuse(absl::UnimplementedError("this controller has no such method"), "method");
  }
  if (!caller->MayCall(*method)) {
    return Refuse(absl::PermissionDeniedError(
                      absl::StrCat(caller->name, " is ", NamesOf(caller->roles), "; ",
                                   View(path->second), " wants ", NameOf(method->least()))),
                  "role");
  }
  return grpc::Status::OK;
}

Principal Gate::CallerOf(const grpc::CallbackServerContext& context) const {
  const auto caller = Authenticate(context.client_metadata());
  CHECK(caller.ok()) << caller.status();
  return *caller;
}

absl::StatusOr<Principal> Gate::Authenticate(const InputMetadata& metadata) const {
  const auto [first, end] = metadata.equal_range("authorization");
  absl::string_view token = first == end ? "" : View(first->second);
  // Two credentials would leave open whose call it is.
  if (first == end || std::next(first) != end || !absl::ConsumePrefix(&token, "Bearer ")) {
    return absl::UnauthenticatedError("no credential: wanted one `authorization: Bearer TOKEN`");
  }
  return token_.Authenticate(token);
}

grpc::Status Gate::Refuse(const absl::Status& status, const char* reason) {
  metrics_.calls_refused_total.Add({{"reason", reason}}).Increment();
  return ToGrpc(status);
}

}  // namespace trainyard::controller
