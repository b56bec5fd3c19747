// Checks addresses to listen on, as users write them.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

// OK: `address` ("127.0.0.1:7070", "[::1]:7070", "localhost:0") can be listened on now, or its port
// is 0. A usage error: the text is not HOST:PORT, or the address is not on loopback.
// ALREADY_EXISTS: the port is taken. `option` is the flag that messages name.
absl::Status CheckListenable(absl::string_view option, const std::string& address);

}  // namespace trainyard::cli
