// Network addresses of the controller, HOST:PORT.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Whether only this machine can be meant: localhost, 127.0.0.0/8, ::1, unix:PATH.
bool IsLoopback(const std::string& address);

// Whether `address` may be dialled or listened on: PERMISSION_DENIED when it is off loopback and
// `insecure` is not set, since there is no TLS yet. `what` names it in the message.
absl::Status CheckMayUse(absl::string_view what, const std::string& address, bool insecure);

// The local address that a packet to `address` would leave from: where other ranks can reach this
// machine. Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace trainyard
