#include "controller/cli/ports.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "controller/cli/errors.h"

namespace trainyard::cli {
namespace {

absl::Status TryBind(const addrinfo& found) {
  const int fd = ::socket(found.ai_family, found.ai_socktype | SOCK_CLOEXEC, found.ai_protocol);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  // As servers do, so that connections of an earlier run that linger are no obstacle.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = ::bind(fd, found.ai_addr, found.ai_addrlen) == 0 && ::listen(fd, 1) == 0;
  const int error = errno;
  ::close(fd);
  if (bound) return absl::OkStatus();
  if (error == EADDRINUSE) return absl::AlreadyExistsError("it is taken");
  return absl::UnavailableError(std::strerror(error));
}

// Names as the controller knows them (controller/service/address.h): it would refuse any other.
bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

}  // namespace

absl::Status CheckListenable(absl::string_view option, const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return UsageError(
        absl::StrCat(option, ": wanted host:port, as in 127.0.0.1:7070, found '", address, "'"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (!IsLoopback(host)) {
    return UsageError(absl::StrCat(
        option, ": wanted an address of this machine alone, as 127.0.0.1:", port, ", found '",
        address,
        "': nothing is encrypted, and nobody is asked for a credential. To serve other machines "
        "all "
        "the same, start trainyard-controller and trainyard-worker yourself, with --insecure"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (failed != 0) {
    return absl::NotFoundError(absl::StrCat(option, ": cannot find the host of '", address,
                                            "': ", ::gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  const absl::Status status = TryBind(*found);
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(option, ": cannot listen on ", address, ": ", status.message(),
                   absl::IsAlreadyExists(status)
                       ? absl::StrCat(", perhaps by another 'trainyard up'; ", option, " ",
                                      address.substr(0, colon), ":0 picks a free port")
                       : ""));
}

}  // namespace trainyard::cli
