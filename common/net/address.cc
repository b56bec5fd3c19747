#include "common/net/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainyard {

bool Address::loopback() const {
  // The name of a host may begin with 127, too.
  const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "::1" || (numeric && absl::StartsWith(host, "127."));
}

std::string Address::ToString() const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const size_t host_end = colon == std::string::npos ? 0 : colon;
  const bool bracketed = host_end >= 2 && text.front() == '[' && text[host_end - 1] == ']';
  Address address;
  address.host = bracketed ? text.substr(1, host_end - 2) : text.substr(0, host_end);
  if (address.host == "localhost") address.host = "127.0.0.1";
  const bool nested = address.host.find_first_of("[]") != std::string::npos;
  if (address.host.empty() || nested || (!bracketed && absl::StrContains(address.host, ':')) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", text,
                     "': wanted HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070; for listening, "
                     "port 0 picks a free one"));
  }
  return address;
}

}  // namespace trainyard
