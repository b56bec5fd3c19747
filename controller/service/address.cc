#include "controller/service/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainyard::controller {

bool Address::loopback() const {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

std::string Address::ToString() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", text,
                     "': wanted HOST:PORT, as 127.0.0.1:7070; port 0 picks a free "
                     "one"));
  }
  address.host = text.substr(0, colon);
  return address;
}

absl::Status CheckListen(const Address& address, bool insecure) {
  if (insecure || address.loopback()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "refusing to listen on ", address.ToString(),
      ": without TLS anybody who reaches it could submit and cancel jobs. Listen on 127.0.0.1, or "
      "give --insecure"));
}

}  // namespace trainyard::controller
