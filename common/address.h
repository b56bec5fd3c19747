// Network addresses, HOST:PORT, and which of them stay on this machine.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

struct Address {
  std::string host;  // "127.0.0.1", "node-1", "::1": without brackets.
  int port = 0;      // 0: any free one, where it is listened on.

  bool loopback() const;  // 127.0.0.0/8, ::1: only this machine can be meant.
  std::string ToString() const;
};

// A host with colons stands in brackets. localhost is 127.0.0.1, and never ::1: who listens on one
// of the two does not keep another user from the other. INVALID_ARGUMENT says what was found and
// what an address looks like.
absl::StatusOr<Address> ParseAddress(const std::string& text);

}  // namespace trainyard
