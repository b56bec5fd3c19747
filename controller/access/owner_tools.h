// Tools for the owner of a controller's state directory. They need no running controller: the owner
// sets up a cluster with them, and gets in again when all tokens are lost.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificates.h"
#include "security/credentials.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// Makes the authority if there is none, and a certificate for a controller that others reach by the
// names `hosts`. Returns the authority's fingerprint.
absl::StatusOr<std::string> InitAuthority(const std::string& state_directory,
                                          const std::vector<std::string>& hosts, absl::Time now);

// Makes a token as CreateToken of AccessService does. A running controller knows the token within a
// second.
absl::StatusOr<Invitation> MakeToken(const std::string& state_directory,
                                     const v1::CreateTokenRequest& request, absl::Time now);

// Makes a key and a certificate for a program that reads the metrics pages, such as Prometheus. The
// certificate has no grant, so it opens no API.
absl::StatusOr<Identity> MakeReader(const std::string& state_directory, const std::string& name,
                                    absl::Duration valid, absl::Time now);

// Returns the names and addresses by which other machines may reach this machine.
std::vector<std::string> HostsOfThisMachine();

}  // namespace trainyard::controller
