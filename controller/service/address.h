// HOST:PORT addresses, and which of them stay on this machine.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::controller {

struct Address {
  std::string host;  // "127.0.0.1", "localhost", "[::1]"
  int port = 0;      // 0: any free one.

  bool loopback() const;
  std::string ToString() const;  // "HOST:PORT"
};

// INVALID_ARGUMENT: says what was found and what an address looks like.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// FAILED_PRECONDITION: off loopback without `insecure`, because nothing would be encrypted or asked
// for a credential.
absl::Status CheckListen(const Address& address, bool insecure);

}  // namespace trainyard::controller
