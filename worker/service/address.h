// Finds the local address by which another machine reaches this worker.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// Returns the local address from which a packet to `address` would leave. Other ranks can reach
// this machine there. Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace trainyard
