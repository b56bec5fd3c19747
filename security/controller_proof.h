// Gets the certificate of a cluster's authority from the controller, for a caller who knows the
// fingerprint of this certificate.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/address.h"

namespace trainyard {

// Opens a TLS connection without checking who answers. Returns, as PEM, the certificate with this
// fingerprint from the certificates that the controller shows. This does not prove the controller:
// the caller's next connection does (Dial of security/channel.h), for which the controller needs a
// key that this authority has signed.
// UNAVAILABLE: the port is closed, or nobody answers within `patience`. FAILED_PRECONDITION: the
// controller does not speak TLS, or shows no such certificate, because the fingerprint belongs to
// another cluster or somebody else answers.
absl::StatusOr<std::string> FetchAuthority(const Address& controller,
                                           const std::string& fingerprint, absl::Duration patience);

}  // namespace trainyard
