// Addresses to listen on, as users write them.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

// OK if `address` ("127.0.0.1:7070", "[::1]:7070", "localhost:0") can be listened on now, or its
// port is 0. Errors: a usage error for what is not host:port, or not of this machine alone;
// ALREADY_EXISTS the port is taken. `option` names the flag in messages.
absl::Status CheckListenable(absl::string_view option, const std::string& address);

}  // namespace trainyard::cli
