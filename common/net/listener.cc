#include "common/net/listener.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::Status CannotListen(const Address& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address.ToString(), ": ", why));
}

absl::StatusOr<Addresses> Resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, ::gai_strerror(error));
  return Addresses(found);
}

uint16_t* PortOf(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

// How often another free port is picked for all addresses of a name.
constexpr int kMostPicks = 8;

// Whether the machine cannot have this address, although the name has it: a machine without IPv6,
// or an address of one link.
bool IsForeign(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EINVAL;
}

// Returns no descriptor on failure; errno then says why.
FileDescriptor BoundTo(const addrinfo& address, const ListenOptions& options) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1, fd = socket.get();
  const auto set = [&](int level, int option, const int& value) {
    return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
  };
  // With SO_REUSEADDR, a restart does not wait for the last packets of the old connections. Two
  // processes still cannot listen on one port.
  const bool bound =
      socket.valid() && set(SOL_SOCKET, SO_REUSEADDR, on) &&
      (options.receive_buffer == 0 || set(SOL_SOCKET, SO_RCVBUF, options.receive_buffer)) &&
      (address.ai_family != AF_INET6 || address.ai_next == nullptr ||
       set(IPPROTO_IPV6, IPV6_V6ONLY, on)) &&
      ::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, options.backlog) == 0;
  return bound ? std::move(socket) : FileDescriptor();
}

}  // namespace

Listener::Listener(FileDescriptor socket, Address address)
    : socket_(std::move(socket)), address_(std::move(address)) {}

absl::StatusOr<std::vector<Listener>> Listener::ListenOnce(const Address& address,
                                                           const ListenOptions& options) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address));
  std::vector<Listener> listeners;
  std::set<std::string> bound_to;
  Address real = address;
  for (addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    *PortOf(each->ai_addr) = htons(uint16_t(real.port));
    const std::string bytes(reinterpret_cast<const char*>(each->ai_addr), each->ai_addrlen);
    if (bound_to.contains(bytes)) continue;  // /etc/hosts may have an address twice.
    FileDescriptor socket = BoundTo(*each, options);
    if (!socket.valid() && IsForeign(errno) && addresses->ai_next != nullptr) continue;
    if (!socket.valid() && errno == EADDRINUSE) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot listen on ", address.ToString(), ": the port is taken"));
    }
    if (!socket.valid()) return CannotListen(address, std::strerror(errno));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    auto* const name = reinterpret_cast<sockaddr*>(&bound);
    if (::getsockname(socket.get(), name, &size) != 0) {
      return CannotListen(address, std::strerror(errno));
    }
    real.port = ntohs(*PortOf(name));
    *PortOf(each->ai_addr) = htons(uint16_t(real.port));
    bound_to.emplace(reinterpret_cast<const char*>(each->ai_addr), each->ai_addrlen);
    listeners.push_back(Listener(std::move(socket), real));
  }
  if (listeners.empty()) return CannotListen(address, "this machine has no such address");
  return listeners;
}

absl::StatusOr<std::vector<Listener>> Listener::Listen(const Address& address,
                                                       const ListenOptions& options) {
  absl::StatusOr<std::vector<Listener>> listeners = ListenOnce(address, options);
  // The port that was free at the first address may be taken at another one.
  for (int i = 1; i < kMostPicks && address.port == 0; ++i) {
    if (!absl::IsAlreadyExists(listeners.status())) break;
    listeners = ListenOnce(address, options);
  }
  return listeners;
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
