// Network addresses of the controller, HOST:PORT.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

// Whether only this machine can be meant: localhost, 127.0.0.0/8, ::1, unix:PATH.
bool IsLoopback(const std::string& address);

// PERMISSION_DENIED when `address` is off loopback and `insecure` is not set: there is no TLS yet.
absl::Status CheckMayDial(const std::string& address, bool insecure);

// The local address that a packet to `address` would leave from: where other ranks can reach this
// machine. Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace trainyard
