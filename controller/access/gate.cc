#include "controller/access/gate.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "controller/access/error.h"
#include "security/tokens.h"

namespace trainyard::controller {
namespace {

std::string NamesOf(const std::set<v1::Role>& roles) {
  return absl::StrJoin(roles, " and ",
                       [](std::string* out, v1::Role role) { absl::StrAppend(out, NameOf(role)); });
}

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// "JobService.GetJob" for "/trainyard.v1.JobService/GetJob".
std::string ShortName(absl::string_view path) {
  return absl::StrReplaceAll(absl::StripPrefix(path, "/trainyard.v1."), {{"/", "."}});
}

Principal OfGrant(const v1::Grant& grant) {
  return {.name = grant.name(),
          .roles = {grant.role()},
          .name_space = grant.namespace_(),
          .grant_id = grant.id(),
          .worker_id = grant.worker_id(),
          .hosts = grant.join().hosts(),
          .expires = absl::FromUnixSeconds(grant.expire_time().seconds())};
}

}  // namespace

Gate::Gate(std::optional<LocalToken> local, const Parts& parts)
    : local_(std::move(local)), parts_(parts), rates_(parts.clock) {}

grpc::Status Gate::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                           OutputMetadata*, OutputMetadata*) {
  // gRPC would inflate a request before it measures it, and a thousandfold.
  const auto encoding = metadata.find("grpc-encoding");
  if (encoding != metadata.end() && encoding->second != "identity") {
    return ToGrpc(Refuse(absl::UnimplementedError(absl::StrCat(
                             "wanted a request with the encoding identity, found ",
                             ValidUtf8(View(encoding->second)), ": send it without compression")),
                         "encoding"));
  }
  const auto found = metadata.find(":path");
  const absl::string_view path = found == metadata.end() ? "" : View(found->second);
  return ToGrpc(Check(Authenticate(metadata, *context), {&path, 1}));
}

absl::StatusOr<Principal> Gate::AdmitReader(absl::string_view token, absl::string_view peer,
                                            absl::Span<const absl::string_view> methods) {
  absl::StatusOr<Principal> caller = OfToken(token);
  // Only wrong tokens are counted by address. So somebody who tries tokens does not keep out a
  // reader with a good token who comes from the same address.
  if (!caller.ok() && !rates_.Take(absl::StrCat("the reader at ", peer)).ok()) {
    return Refuse(absl::ResourceExhaustedError(
                      "too many wrong tokens come from this address; wait some seconds"),
                  "rate");
  }
  RETURN_IF_ERROR(Check(caller, methods));
  return caller;
}

absl::Status Gate::Check(const absl::StatusOr<Principal>& caller,
                         absl::Span<const absl::string_view> methods) {
  if (!caller.ok()) {
    return Refuse(caller.status(),
                  absl::IsPermissionDenied(caller.status()) ? "role" : "credential");
  }
  std::vector<const v1::Access*> found;
  for (const absl::string_view path : methods) found.push_back(methods_.Find(path));
  // Only known callers learn which methods exist.
  if (std::find(found.begin(), found.end(), nullptr) != found.end()) {
    return Refuse(absl::UnimplementedError("this controller has no such method"), "method");
  }
  // The user of the controller's own machine shares it with nobody.
  if (!caller->local) {
    const bool joins = found.size() == 1 && found[0]->least() == v1::ROLE_JOINER;
    const double cost = joins ? kJoinCost : 1;
    const absl::Status rate = rates_.Take(caller->account(), cost);
    if (!rate.ok()) return Refuse(rate, "rate");
  }
  for (size_t i = 0; i < found.size(); ++i) {
    RETURN_IF_ERROR(CheckRole(*caller, methods[i], *found[i]));
  }
  return absl::OkStatus();
}

absl::Status Gate::CheckRole(const Principal& caller, absl::string_view path,
                             const v1::Access& method) {
  if (caller.MayCall(method)) return absl::OkStatus();
  const absl::Status status = absl::PermissionDeniedError(
      absl::StrCat(caller.name, " has the role ", NamesOf(caller.roles), "; ", path,
                   " wants the role ", NameOf(method.least())));
  // gRPC does not say here from which address the call comes.
  if (method.changes()) {
    parts_.audit.Write(parts_.audit.Entry(caller, ShortName(path), ""), status, {});
  }
  return Refuse(status, "role");
}

absl::StatusOr<Principal> Gate::CallerOf(const grpc::ServerContextBase& context) const {
  return Authenticate(context.client_metadata(), *context.auth_context());
}

absl::StatusOr<Principal> Gate::Authenticate(const InputMetadata& metadata,
                                             const grpc::AuthContext& peer) const {
  const auto [first, end] = metadata.equal_range("authorization");
  const std::vector<grpc::string_ref> uris = peer.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  if (first == end && uris.empty()) {
    return absl::UnauthenticatedError(
        "the call shows no credential: wanted `authorization: Bearer TOKEN`, or a certificate that "
        "names a worker");
  }
  // With two credentials, it would be unclear whose call this is.
  if (std::distance(first, end) + std::ptrdiff_t(uris.size()) != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("wanted one credential, found ", std::distance(first, end),
                     " headers `authorization` and a certificate with ", uris.size(), " names"));
  }
  if (!uris.empty()) return OfCertificate(View(uris.front()));
  absl::string_view token = View(first->second);
  if (!absl::ConsumePrefix(&token, "Bearer ")) {
    return absl::UnauthenticatedError("wanted `authorization: Bearer TOKEN`");
  }
  return OfToken(token);
}

absl::StatusOr<Principal> Gate::OfToken(absl::string_view text) const {
  // No token of the controller's own has a dot.
  if (absl::StrContains(text, '.')) return parts_.issuers.Authenticate(text);
  const absl::StatusOr<Token> token = ParseToken(text);
  if (!token.ok()) return absl::UnauthenticatedError(token.status().message());
  if (local_ && local_->Is(*token)) return LocalToken::Owner();
  const std::optional<StoredGrant> found = parts_.grants.Find(token->id);
  // A worker's grant has no secret, and an id is no secret either.
  if (!found || found->grant.role() == v1::ROLE_WORKER ||
      !SameSecret(HashSecret(*token), found->secret_hash)) {
    return absl::UnauthenticatedError(
        "this controller does not know the token: it has expired, was revoked, or is another "
        "controller's");
  }
  return OfGrant(found->grant);
}

absl::StatusOr<Principal> Gate::OfCertificate(absl::string_view uri) const {
  WorkerName name;
  if (!ParseUri(uri, name)) return absl::UnauthenticatedError("the certificate is not a worker's");
  const std::optional<StoredGrant> found = parts_.grants.Find(name.grant_id);
  if (!found || found->grant.role() != v1::ROLE_WORKER ||
      found->grant.worker_id() != name.worker_id) {
    return absl::UnauthenticatedError("the worker's certificate has been revoked");
  }
  return OfGrant(found->grant);
}

absl::Status Gate::Refuse(const absl::Status& status, const char* reason) {
  parts_.metrics.calls_refused_total.Add({{"reason", reason}}).Increment();
  return status;
}

}  // namespace trainyard::controller
