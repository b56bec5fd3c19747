#include "controller/service/access_service.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/access/error.h"
#include "controller/access/joining.h"
#include "controller/service/reply.h"

namespace trainyard::controller {
namespace {

constexpr uint32_t kDefaultGrants = 100;
constexpr uint32_t kMaxGrants = 5'000;

// How many calls may wait for the disk. They take some seconds.
constexpr size_t kMostWaiting = 512;

absl::Status NoTls() {
  return absl::FailedPreconditionError(
      "this controller serves only its own machine, where workers need not join: start the worker "
      "without --join, and with --token-file if it runs as another user than the controller");
}

v1::AuditEntry ToProto(const AuditEntry& entry) {
  v1::AuditEntry out;
  out.set_number(entry.number);
  *out.mutable_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(entry.time));
  out.set_caller(entry.caller);
  out.set_credential(entry.credential);
  out.set_peer(entry.peer);
  out.set_method(entry.method);
  out.set_target(entry.target);
  out.set_namespace_(entry.name_space);
  out.set_detail(entry.detail);
  out.set_outcome(entry.outcome);
  out.set_message(entry.message);
  out.set_hash(entry.hash);
  return out;
}

}  // namespace

template <typename Work>
grpc::ServerUnaryReactor* AccessService::Wait(Executor& executor,
                                              grpc::CallbackServerContext* context, Work work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Principal> now = parts_.gate.CallerOf(*context);
  const auto run = [this, context, reactor, work = std::move(work)] {
    if (context->IsCancelled()) return reactor->Finish(grpc::Status::CANCELLED);
    const absl::StatusOr<Principal> caller = parts_.gate.CallerOf(*context);
    if (!caller.ok()) return reactor->Finish(ToGrpc(caller.status()));
    work(*caller, reactor);
  };
  if (!executor.Offer(now.ok() ? now->account() : "", kMostWaiting, run)) {
    reactor->Finish(ToGrpc(absl::ResourceExhaustedError(
        "the disk does not keep up with changes of grants: try again later")));
  }
  return reactor;
}

template <typename Handle>
grpc::ServerUnaryReactor* AccessService::Answer(grpc::CallbackServerContext* context,
                                                Handle handle) {
  return Wait(
      reading_, context,
      [handle = std::move(handle)](const Principal& caller, grpc::ServerUnaryReactor* reactor) {
        reactor->Finish(ToGrpc(handle(caller)));
      });
}

template <typename Handle>
grpc::ServerUnaryReactor* AccessService::Change(grpc::CallbackServerContext* context,
                                                const char* method, Handle handle) {
  const auto change = [this, context, method, handle = std::move(handle)](
                          const Principal& caller, grpc::ServerUnaryReactor* reactor) {
    AuditEntry entry = parts_.audit.Entry(caller, method, context->peer());
    const absl::Status status = handle(caller, entry);
    // If the change cannot be recorded, the caller gets an error, and may repeat the call.
    parts_.audit.Write(std::move(entry), status, [reactor, status](const absl::Status& written) {
      reactor->Finish(ToGrpc(status.ok() ? written : status));
    });
  };
  return Wait(changing_, context, change);
}

grpc::ServerUnaryReactor* AccessService::WhoAmI(grpc::CallbackServerContext* context,
                                                const v1::WhoAmIRequest*,
                                                v1::WhoAmIResponse* response) {
  return Reply(context, [&] {
    const absl::StatusOr<Principal> caller = parts_.gate.CallerOf(*context);
    if (!caller.ok()) return ToGrpc(caller.status());
    response->set_name(caller->name);
    for (const v1::Role role : caller->roles) response->add_roles(role);
    response->set_namespace_(caller->name_space);
    if (caller->expires < absl::InfiniteFuture()) {
      response->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(caller->expires));
    }
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* AccessService::CreateToken(grpc::CallbackServerContext* context,
                                                     const v1::CreateTokenRequest* request,
                                                     v1::CreateTokenResponse* response) {
  const auto create = [this, request, response](const Principal& caller,
                                                AuditEntry& entry) -> absl::Status {
    entry.detail = absl::StrCat(NameOf(request->role()), " ", request->name());
    const absl::Time now = parts_.clock.Now();
    ASSIGN_OR_RETURN(v1::Grant grant, GrantFor(*request, caller.name, now));
    ASSIGN_OR_RETURN(NewGrant made, MakeToken(std::move(grant), now));
    made.stored.request_id = request->request_id();
    RETURN_IF_ERROR(parts_.grants.Put(made.stored));
    entry.target = made.stored.grant.id();
    *response->mutable_grant() = made.stored.grant;
    response->set_token(made.token);
    if (parts_.authority != nullptr) {
      response->set_authority_fingerprint(parts_.authority->fingerprint());
    }
    return absl::OkStatus();
  };
  return Change(context, "AccessService.CreateToken", create);
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
  const auto revoke = [this, request, response](const Principal&,
                                                AuditEntry& entry) -> absl::Status {
    entry.target = request->id();
    // After a change that leaves a file, the file is evidence. After a removal, the log is the only
    // evidence.
    if (parts_.grants.Knows(request->id())) RETURN_IF_ERROR(parts_.audit.WriteIntent(entry));
    ASSIGN_OR_RETURN(*response->mutable_grant(), parts_.grants.Revoke(request->id()));
    entry.detail = absl::StrCat(NameOf(response->grant().role()), " ", response->grant().name());
    return absl::OkStatus();
  };
  return Change(context, "AccessService.RevokeGrant", revoke);
}

grpc::ServerUnaryReactor* AccessService::Join(grpc::CallbackServerContext* context,
                                              const v1::JoinRequest* request,
                                              v1::JoinResponse* response) {
  const auto join = [this, request, response](const Principal& caller,
                                              AuditEntry& entry) -> absl::Status {
    entry.target = request->worker_id();
    entry.detail = request->hostname();
    if (parts_.authority == nullptr) return NoTls();
    ASSIGN_OR_RETURN(
        *response->mutable_certificates(),
        controller::Join(parts_.grants, *parts_.authority, caller, *request, parts_.clock.Now()));
    return absl::OkStatus();
  };
  return Change(context, "AccessService.Join", join);
}

grpc::ServerUnaryReactor* AccessService::RenewCertificate(
    grpc::CallbackServerContext* context, const v1::RenewCertificateRequest* request,
    v1::RenewCertificateResponse* response) {
  const auto renew = [this, request, response](const Principal& caller,
                                               AuditEntry& entry) -> absl::Status {
    entry.target = caller.worker_id;
    if (parts_.authority == nullptr) return NoTls();
    ASSIGN_OR_RETURN(*response->mutable_certificates(),
                     Renew(parts_.grants, *parts_.authority, caller, request->certificate_request(),
                           parts_.clock.Now()));
    return absl::OkStatus();
  };
  return Change(context, "AccessService.RenewCertificate", renew);
}

grpc::ServerUnaryReactor* AccessService::ListAudit(grpc::CallbackServerContext* context,
                                                   const v1::ListAuditRequest* request,
                                                   v1::ListAuditResponse* response) {
  return Answer(context, [this, request, response](const Principal&) -> absl::Status {
    const uint32_t size =
        std::min(request->page_size() == 0 ? kDefaultGrants : request->page_size(), kMaxGrants);
    uint64_t after = request->after();
    if (!request->has_after()) {
      ASSIGN_OR_RETURN(const uint64_t newest, parts_.audit.store().NewestAudit());
      after = newest - std::min<uint64_t>(newest, size);
    }
    ASSIGN_OR_RETURN(const std::vector<AuditEntry> entries,
                     parts_.audit.store().ReadAudit(after, size));
    for (const AuditEntry& entry : entries) *response->add_entries() = ToProto(entry);
    return absl::OkStatus();
  });
}

}  // namespace trainyard::controller
