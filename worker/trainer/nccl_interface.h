// NCCL's own connections go over the interface that the worker was given, and no other.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// The network device with this name or this address (IPv4 or IPv6). NOT_FOUND: there is none.
absl::StatusOr<std::string> NetworkDevice(const std::string& interface);

// Before NCCL is first used; what the operator has set for NCCL (NCCL_SOCKET_IFNAME) stays.
absl::Status KeepNcclOn(const std::string& interface);

}  // namespace trainyard
