#include "cli/ports.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "common/file_descriptor.h"
#include "common/net/address.h"

namespace trainyard::cli {
namespace {

absl::Status TryBind(const addrinfo& found) {
  const FileDescriptor socket(
      ::socket(found.ai_family, found.ai_socktype | SOCK_CLOEXEC, found.ai_protocol));
  if (!socket.valid()) return absl::UnavailableError(std::strerror(errno));
  // Servers set this, too, so that old connections of an earlier run are no obstacle.
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), found.ai_addr, found.ai_addrlen) == 0 &&
      ::listen(socket.get(), 1) == 0) {
    return absl::OkStatus();
  }
  if (errno == EADDRINUSE) return absl::AlreadyExistsError("it is taken");
  return absl::UnavailableError(std::strerror(errno));
}

}  // namespace

absl::Status CheckListenable(absl::string_view option, const std::string& address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return UsageError(absl::StrCat(option, ": ", parsed.status().message()));
  if (!parsed->loopback()) {
    return UsageError(absl::StrCat(
        option, ": wanted a loopback address, such as 127.0.0.1:", parsed->port, ", found '",
        address,
        "': 'up' encrypts nothing. To serve other machines, begin with 'trainyard-controller init' "
        "and start trainyard-controller and trainyard-worker yourself (docs/access.md)"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(parsed->host.c_str(), absl::StrCat(parsed->port).c_str(), &hints, &found);
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
                                      Address{parsed->host, 0}.ToString(), " picks a free port")
                       : ""));
}

}  // namespace trainyard::cli
