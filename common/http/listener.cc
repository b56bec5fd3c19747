#include "common/http/listener.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

absl::StatusOr<FileDescriptor> ListenAt(const addrinfo& where) {
  FileDescriptor socket(
      ::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, where.ai_protocol));
  // Without this, a restart would wait until the kernel has forgotten the old connections.
  const int yes = 1;
  if (!socket.valid() ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      ::bind(socket.get(), where.ai_addr, where.ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return socket;
}

int PortOf(const FileDescriptor& socket) {
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof(bound);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

}  // namespace

Listener::Listener(FileDescriptor socket, Address address)
    : socket_(std::move(socket)), address_(std::move(address)) {}

absl::StatusOr<Listener> Listener::Listen(const Address& address) {
  const addrinfo wanted = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                           .ai_family = AF_UNSPEC,
                           .ai_socktype = SOCK_STREAM,
                           .ai_protocol = 0,
                           .ai_addrlen = 0,
                           .ai_addr = nullptr,
                           .ai_canonname = nullptr,
                           .ai_next = nullptr};
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found);
  const std::string where = absl::StrCat("cannot listen at ", address.ToString(), ": ");
  if (error != 0) return absl::UnavailableError(absl::StrCat(where, ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  absl::Status refused;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    absl::StatusOr<FileDescriptor> socket = ListenAt(*one);
    if (socket.ok()) {
      const int real_port = PortOf(*socket);
      return Listener(*std::move(socket), {.host = address.host, .port = real_port});
    }
    refused = socket.status();
  }
  return absl::UnavailableError(absl::StrCat(where, refused.message()));
}

absl::StatusOr<AcceptedSocket> Listener::Accept() const {
  AcceptedSocket accepted;
  accepted.socket =
      FileDescriptor(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&accepted.peer),
                               &accepted.peer_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.socket.valid()) return accepted;
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return absl::ResourceExhaustedError(std::strerror(errno));
  }
  return absl::UnavailableError(std::strerror(errno));
}

}  // namespace trainyard
