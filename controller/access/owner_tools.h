// What the owner of a controller's state directory does there without asking a controller: begin,
// and get in again when all tokens are lost.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificates.h"
#include "security/credentials.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// Makes the authority where there is none, and a certificate for a controller that is reached by
// `hosts`. Returns the authority's fingerprint.
absl::StatusOr<std::string> InitAuthority(const std::string& state_directory,
                                          const std::vector<std::string>& hosts, absl::Time now);

// A token as CreateToken of AccessService makes it; a controller that runs knows it within a
// second.
absl::StatusOr<Invitation> MakeToken(const std::string& state_directory,
                                     const v1::CreateTokenRequest& request, absl::Time now);

// A key and a certificate by which a program, as Prometheus, may read the metrics pages. No grant
// stands behind it, so that it opens no API.
absl::StatusOr<Identity> MakeReader(const std::string& state_directory, const std::string& name,
                                    absl::Duration valid, absl::Time now);

// The names and addresses by which other machines may reach this one.
std::vector<std::string> HostsOfThisMachine();

}  // namespace trainyard::controller
