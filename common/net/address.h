// Network addresses, HOST:PORT, and which of them are reachable from this machine alone.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// Where a controller listens, and where others look for it, unless told otherwise.
inline constexpr char kDefaultController[] = "127.0.0.1:7070";

struct Address {
  std::string host;  // "127.0.0.1", "node-1", "::1": without brackets.
  int port = 0;      // 0: any free port, for listening.

  bool loopback() const;  // Whether only this machine can reach it: 127.0.0.0/8, ::1.
  std::string ToString() const;
};

// Parses an address. A host with colons stands in brackets. localhost means 127.0.0.1, and never
// ::1: a program that listens on one of the two does not keep another user from the other.
// INVALID_ARGUMENT: the message says what was found and what an address looks like.
absl::StatusOr<Address> ParseAddress(const std::string& text);

}  // namespace trainyard
