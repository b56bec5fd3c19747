// Makes workers of machines: a machine shows a joiner's token, and has a key of its own.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/access/grants.h"
#include "controller/access/principal.h"
#include "security/authority.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// The host name in every worker's certificate. Programs that connect to a worker, such as
// Prometheus, expect this name. The name is not that of a host, so that no worker's certificate
// passes for the controller's.
inline constexpr char kWorkerHost[] = "worker.trainyard";

// Returns the certificates of a new worker, for which `joiner` asks. Errors: those of
// AccessService.Join.
absl::StatusOr<std::string> Join(Grants& grants, const Authority& authority,
                                 const Principal& joiner, const v1::JoinRequest& request,
                                 absl::Time now);

// Returns new certificates for the worker that calls, and extends its grant by the same time.
absl::StatusOr<std::string> Renew(Grants& grants, const Authority& authority,
                                  const Principal& worker, const std::string& request_pem,
                                  absl::Time now);

// Returns the grant that `request` asks for, without an id. INVALID_ARGUMENT lists all violations.
absl::StatusOr<v1::Grant> GrantFor(const v1::CreateTokenRequest& request,
                                   const std::string& created_by, absl::Time now);

}  // namespace trainyard::controller
