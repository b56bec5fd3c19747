#include "worker/service/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/net/address.h"
#include "common/status_macros.h"

namespace trainyard {

absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  ASSIGN_OR_RETURN(const Address target, ParseAddress(address));
  if (target.loopback()) return "127.0.0.1";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(target.host.c_str(), absl::StrCat(target.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", target.host, ": ", ::gai_strerror(error)));
  }
  absl::Status status = absl::UnavailableError(absl::StrCat("no route to ", address));
  std::string result;
  for (const addrinfo* it = found; it != nullptr && result.empty(); it = it->ai_next) {
    const FileDescriptor socket(::socket(it->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) continue;
    sockaddr_storage local = {};
    socklen_t size = sizeof(local);
    char host[NI_MAXHOST];
    if (::connect(socket.get(), it->ai_addr, it->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&local), size, host, sizeof(host), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      result = host;
    } else {
      status = ErrnoStatus(errno, "find a route to", address);
    }
  }
  ::freeaddrinfo(found);
  if (result.empty()) return status;
  return result;
}

}  // namespace trainyard
