// Ids of requests. A call that is repeated with the same id changes something once.

#pragma once

#include <string>

namespace trainyard::cli {

// Returns a new UUID of version 4 (RFC 9562).
std::string NewRequestId();

}  // namespace trainyard::cli
