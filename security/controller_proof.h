// Fetches what a controller shows to a client that does not trust it yet: the authority with a
// given fingerprint. Also explains why a controller's certificate was refused.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/address.h"

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

// Returns the error text of a call. gRPC says only that a certificate could not be verified. If a
// certificate that the controller shows now has expired or is not valid yet, the text also says
// which one, when, and what to do.
std::string ExplainProof(absl::string_view error, const Address& controller);

}  // namespace trainyard
