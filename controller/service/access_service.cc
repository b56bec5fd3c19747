#include "controller/service/access_service.h"

#include <utility>

#include "common/status_macros.h"
#include "controller/access/joining.h"
#include "controller/service/error.h"

namespace trainyard::controller {
namespace {

absl::Status NoTls() {
  return absl::FailedPreconditionError(
      "this controller serves its own machine alone, where workers need not join: give them "
      "--token-file, or nothing if they run as its user");
}

}  // namespace

template <typename Handle>
grpc::ServerUnaryReactor* AccessService::Answer(grpc::CallbackServerContext* context,
                                                Handle handle) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  executor_.Post([this, context, reactor, handle = std::move(handle)] {
    const absl::StatusOr<Principal> caller = parts_.gate.CallerOf(*context);
    reactor->Finish(ToGrpc(caller.ok() ? handle(*caller) : caller.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AccessService::WhoAmI(grpc::CallbackServerContext* context,
                                                const v1::WhoAmIRequest*,
                                                v1::WhoAmIResponse* response) {
  return Answer(context, [response](const Principal& caller) {
    response->set_name(caller.name);
    for (const v1::Role role : caller.roles) response->add_roles(role);
    response->set_namespace_(caller.name_space);
    if (caller.expires < absl::InfiniteFuture()) {
      response->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(caller.expires));
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessService::CreateToken(grpc::CallbackServerContext* context,
                                                     const v1::CreateTokenRequest* request,
                                                     v1::CreateTokenResponse* response) {
  return Answer(context, [this, request, response](const Principal& caller) -> absl::Status {
    const absl::Time now = parts_.clock.Now();
    ASSIGN_OR_RETURN(v1::Grant grant, GrantFor(*request, caller.name, now));
    ASSIGN_OR_RETURN(NewGrant made, MakeToken(std::move(grant), now));
    RETURN_IF_ERROR(parts_.grants.Put(made.stored));
    *response->mutable_grant() = made.stored.grant;
    response->set_token(made.token);
    if (parts_.authority != nullptr) {
      response->set_authority_fingerprint(parts_.authority->fingerprint());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessService::ListGrants(grpc::CallbackServerContext* context,
                                                    const v1::ListGrantsRequest*,
                                                    v1::ListGrantsResponse* response) {
  return Answer(context, [this, response](const Principal&) {
    for (v1::Grant& grant : parts_.grants.List()) *response->add_grants() = std::move(grant);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessService::RevokeGrant(grpc::CallbackServerContext* context,
                                                     const v1::RevokeGrantRequest* request,
                                                     v1::RevokeGrantResponse* response) {
  return Answer(context, [this, request, response](const Principal&) -> absl::Status {
    ASSIGN_OR_RETURN(*response->mutable_grant(), parts_.grants.Revoke(request->id()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessService::Join(grpc::CallbackServerContext* context,
                                              const v1::JoinRequest* request,
                                              v1::JoinResponse* response) {
  return Answer(context, [this, request, response](const Principal& caller) -> absl::Status {
    if (parts_.authority == nullptr) return NoTls();
    ASSIGN_OR_RETURN(
        *response->mutable_certificates(),
        controller::Join(parts_.grants, *parts_.authority, caller, *request, parts_.clock.Now()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccessService::RenewCertificate(
    grpc::CallbackServerContext* context, const v1::RenewCertificateRequest* request,
    v1::RenewCertificateResponse* response) {
  return Answer(context, [this, request, response](const Principal& caller) -> absl::Status {
    if (parts_.authority == nullptr) return NoTls();
    ASSIGN_OR_RETURN(*response->mutable_certificates(),
                     Renew(parts_.grants, *parts_.authority, caller, request->certificate_request(),
                           parts_.clock.Now()));
    return absl::OkStatus();
  });
}

}  // namespace trainyard::controller
