// Which address of a worker's own leads to another machine.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// The local address that a packet to `address` would leave from: where other ranks can reach this
// machine. Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace trainyard
