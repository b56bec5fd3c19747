// How somebody who was told a fingerprint gets the authority that it belongs to, from the
// controller itself.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/address.h"

namespace trainyard {

// Opens a TLS connection, trusting nobody, and returns that certificate among those the controller
// shows which has the fingerprint, as PEM. Whether the controller has the key for a certificate
// which that one signed, the caller's next connection finds out (Dial of security/channel.h).
// UNAVAILABLE: the port is closed, or nobody answers within `patience`. FAILED_PRECONDITION: it
// speaks no TLS, or shows no such certificate: the fingerprint is another cluster's, or somebody
// else answers.
absl::StatusOr<std::string> FetchAuthority(const Address& controller,
                                           const std::string& fingerprint, absl::Duration patience);

}  // namespace trainyard
