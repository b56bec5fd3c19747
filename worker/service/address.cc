#include "worker/service/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"

namespace trainyard {
namespace {

struct HostPort {
  std::string host, port;
};

HostPort Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool bare_ipv6 =
      colon != std::string::npos && address.find(':') != colon && !absl::StrContains(address, "]:");
  if (colon == std::string::npos || bare_ipv6) return {address, ""};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host, address.substr(colon + 1)};
}

bool IsDottedQuad(const std::string& host) {
  return host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

bool IsLoopback(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host = Split(address).host;
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") && IsDottedQuad(host));
}

absl::Status CheckMayUse(absl::string_view what, const std::string& address, bool insecure) {
  if (insecure || IsLoopback(address)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(what, " ", address,
                   " reaches beyond this machine and nothing there is encrypted; give --insecure "
                   "if everybody on the "
                   "network may read and change it"));
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  if (IsLoopback(address)) return "127.0.0.1";
  const HostPort target = Split(address);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", target.host, ": ", ::gai_strerror(error)));
  }
  absl::Status status = absl::UnavailableError(absl::StrCat("no route to ", address));
  std::string result;
  for (const addrinfo* it = found; it != nullptr && result.empty(); it = it->ai_next) {
    const int fd = ::socket(it->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local = {};
    socklen_t size = sizeof(local);
    char host[NI_MAXHOST];
    if (::connect(fd, it->ai_addr, it->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&local), size, host, sizeof(host), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      result = host;
    } else {
      status = ErrnoStatus(errno, "find a route to", address);
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  if (result.empty()) return status;
  return result;
}

}  // namespace trainyard
