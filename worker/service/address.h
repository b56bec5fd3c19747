// What a worker may dial and listen on, and which address of its own leads there.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Whether `address` may be dialled or listened on: INVALID_ARGUMENT when it is none,
// PERMISSION_DENIED when it is off loopback and `insecure` is not set, since there is no TLS yet.
// `what` names it in the message.
absl::Status CheckMayUse(absl::string_view what, const std::string& address, bool insecure);

// The local address that a packet to `address` would leave from: where other ranks can reach this
// machine. Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace trainyard
