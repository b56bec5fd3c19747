#include "controller/access/joining.h"

#include <fnmatch.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "controller/jobs/job.h"
#include "security/certificates.h"

namespace trainyard::controller {
namespace {

constexpr int64_t kDay = 24 * 3600;
constexpr size_t kMostRequestIdBytes = 128;
constexpr int64_t kJoinSeconds = 3600;
constexpr int64_t kPersonSeconds = 90 * kDay;
constexpr int64_t kMostSeconds = 400 * kDay;
// Enough for machines that come and go. Each of them has the joiner's token in a file, so the time
// is shorter than a person's.
constexpr int64_t kMostJoinSeconds = 30 * kDay;

CertificateFacts FactsOf(const v1::Grant& worker, absl::Time now) {
  return {.common_name = worker.name(),
          .uris = {ToUri({worker.worker_id(), worker.id()})},
          .dns_names = {kWorkerHost},
          .not_before = now - kClocksDiffer,
          .not_after = now + kCertificatesHold,
          .server = true,
          .client = true};
}

void Extend(v1::Grant& worker, absl::Time now) {
  worker.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now + kCertificatesHold));
}

}  // namespace

absl::StatusOr<std::string> Join(Grants& grants, const Authority& authority,
                                 const Principal& joiner, const v1::JoinRequest& request,
                                 absl::Time now) {
  Violations violations;
  CheckName("worker_id", request.worker_id(), violations);
  CheckName("hostname", request.hostname(), violations);
  RETURN_IF_ERROR(violations.ToStatus());
  if (!joiner.hosts.empty() &&
      ::fnmatch(joiner.hosts.c_str(), request.hostname().c_str(), 0) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("the token is for hosts whose names match '",
                                                      joiner.hosts, "'; the name of this host is ",
                                                      request.hostname()));
  }
  StoredGrant worker;
  ASSIGN_OR_RETURN(worker.key_hash, KeyFingerprint(request.certificate_request()));
  ASSIGN_OR_RETURN(NewGrant fresh, MakeToken({}, now));  // Only its id is used.
  worker.grant = std::move(fresh.stored.grant);
  worker.grant.set_name(request.hostname());
  worker.grant.set_role(v1::ROLE_WORKER);
  worker.grant.set_worker_id(request.worker_id());
  worker.grant.set_created_by(joiner.name);
  Extend(worker.grant, now);
  // Signs once before a use is taken, so that a request which cannot be signed costs no use.
  RETURN_IF_ERROR(
      authority.Sign(request.certificate_request(), FactsOf(worker.grant, now)).status());
  ASSIGN_OR_RETURN(const v1::Grant joined, grants.Join(joiner.grant_id, std::move(worker)));
  return authority.Sign(request.certificate_request(), FactsOf(joined, now));
}

absl::StatusOr<std::string> Renew(Grants& grants, const Authority& authority,
                                  const Principal& worker, const std::string& request_pem,
                                  absl::Time now) {
  std::optional<StoredGrant> grant = grants.Find(worker.grant_id);
  if (!grant) return absl::UnauthenticatedError("the worker's certificate has been revoked");
  ASSIGN_OR_RETURN(grant->key_hash, KeyFingerprint(request_pem));
  Extend(grant->grant, now);
  ASSIGN_OR_RETURN(std::string certificates,
                   authority.Sign(request_pem, FactsOf(grant->grant, now)));
  RETURN_IF_ERROR(grants.Replace(*grant));
  return certificates;
}

absl::StatusOr<v1::Grant> GrantFor(const v1::CreateTokenRequest& request,
                                   const std::string& created_by, absl::Time now) {
  Violations violations;
  const bool joiner = request.role() == v1::ROLE_JOINER;
  const bool of_namespace =
      request.role() == v1::ROLE_VIEWER || request.role() == v1::ROLE_SUBMITTER;
  CheckName("name", request.name(), violations);
  if (request.role() < v1::ROLE_VIEWER || request.role() > v1::ROLE_JOINER ||
      !v1::Role_IsValid(request.role())) {
    violations.Add("role", kWantedRole);
  }
  if (!request.namespace_().empty() && !of_namespace) {
    violations.Add("namespace", "no namespace, since the role acts in all namespaces");
  }
  if (!request.namespace_().empty()) CheckName("namespace", request.namespace_(), violations);
  const int64_t seconds = request.has_valid() ? request.valid().seconds()
                          : joiner            ? kJoinSeconds
                                              : kPersonSeconds;
  const int64_t most = joiner ? kMostJoinSeconds : kMostSeconds;
  if (seconds < 1 || seconds > most) {
    violations.Add("valid", absl::StrCat("1 s to ", most / kDay, " days"),
                   absl::StrCat(seconds, " s"));
  }
  if (request.has_join() && !joiner) {
    violations.Add("join", "no limits for joining, since the role does not let workers join");
  }
  if (request.has_join() && request.join().uses() == 0) {
    violations.Add("join.uses", "at least 1", 0);
  }
  if (request.request_id().size() > kMostRequestIdBytes) {
    violations.Add("request_id", absl::StrCat("at most ", kMostRequestIdBytes, " characters"),
                   request.request_id().size());
  }
  RETURN_IF_ERROR(violations.ToStatus());
  v1::Grant grant;
  grant.set_name(request.name());
  grant.set_role(request.role());
  if (of_namespace) {
    grant.set_namespace_(request.namespace_().empty() ? kDefaultNamespace : request.namespace_());
  }
  grant.set_created_by(created_by);
  grant.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now) + seconds);
  if (joiner) *grant.mutable_join() = request.join();
  if (joiner && !request.has_join()) grant.mutable_join()->set_uses(1);
  return grant;
}

}  // namespace trainyard::controller
