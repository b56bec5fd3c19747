// Keeps NCCL's own connections on the interface that the worker was given.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// Returns the network device with this name or this address (IPv4 or IPv6). NOT_FOUND: there is
// none.
absl::StatusOr<std::string> NetworkDevice(const std::string& interface);

// Call this before the first use of NCCL. A value that the operator has set (NCCL_SOCKET_IFNAME)
// stays.
absl::Status KeepNcclOn(const std::string& interface);

}  // namespace trainyard
