// What a controller shows to who does not trust it yet: the authority that belongs to a
// fingerprint, and why the proof that it shows is refused.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/address.h"

namespace trainyard {

// Opens a TLS connection, trusting nobody, and returns that certificate among those the controller
// shows which has the fingerprint, as PEM. Whether the controller has the key for a certificate
// which that one signed, the caller's next connection finds out (Dial of security/channel.h).
// UNAVAILABLE: no controller answers within `patience`. FAILED_PRECONDITION: it speaks no TLS, or
// shows no such certificate: the fingerprint is another cluster's, or somebody else answers.
absl::StatusOr<std::string> FetchAuthority(const Address& controller,
                                           const std::string& fingerprint, absl::Duration patience);

// Returns the error of a call. gRPC says only that a certificate could not be verified: where one
// that the controller shows now has expired, or is not valid yet, the text goes on with which one,
// when, and what to do.
std::string ExplainProof(absl::string_view error, const Address& controller);

}  // namespace trainyard
