// How machines become workers: by a token that says so, and a key of their own.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/access/grants.h"
#include "controller/access/principal.h"
#include "security/authority.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// The name that every worker's certificate has for those who connect to the worker, as Prometheus
// does. Never a host's: no certificate of a worker passes for the controller's.
inline constexpr char kWorkerHost[] = "worker.trainyard";

// The certificates of a new worker, for whom `joiner` has let in. Errors: AccessService.Join.
absl::StatusOr<std::string> Join(Grants& grants, const Authority& authority,
                                 const Principal& joiner, const v1::JoinRequest& request,
                                 absl::Time now);

// New certificates for the worker that calls, and as much time for its grant.
absl::StatusOr<std::string> Renew(Grants& grants, const Authority& authority,
                                  const Principal& worker, const std::string& request_pem,
                                  absl::Time now);

// The grant for `request`, but its id. INVALID_ARGUMENT with all violations.
absl::StatusOr<v1::Grant> GrantFor(const v1::CreateTokenRequest& request,
                                   const std::string& created_by, absl::Time now);

}  // namespace trainyard::controller
