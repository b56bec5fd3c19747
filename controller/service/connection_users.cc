#include "controller/service/connection_users.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace trainyard::controller {
namespace {

std::string Text(const in6_addr& address, int port) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, " ", port);
}

in6_addr Mapped(const in_addr& address) {
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  static_assert(sizeof(address) == 4);
  for (size_t i = 0; i < 4; ++i) {
    mapped.s6_addr[12 + i] = uint8_t(ntohl(address.s_addr) >> (24 - 8 * i));
  }
  return mapped;
}

}  // namespace

std::string PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return Text(v6.sin6_addr, ntohs(v6.sin6_port));
  }
  if (address.ss_family != AF_INET) return "";
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  return Text(Mapped(v4.sin_addr), ntohs(v4.sin_port));
}

std::string PeerOf(absl::string_view grpc_peer) {
  const size_t colon = grpc_peer.rfind(':');
  int port = 0;
  if (colon == grpc_peer.npos || !absl::SimpleAtoi(grpc_peer.substr(colon + 1), &port)) return "";
  absl::string_view host = grpc_peer.substr(0, colon);
  in6_addr v6{};
  in_addr v4{};
  if (absl::ConsumePrefix(&host, "ipv4:")) {
    if (::inet_pton(AF_INET, std::string(host).c_str(), &v4) != 1) return "";
    return Text(Mapped(v4), port);
  }
  if (!absl::ConsumePrefix(&host, "ipv6:%5B") || !absl::ConsumeSuffix(&host, "%5D")) return "";
  // A link-local address names its interface, too.
  host = host.substr(0, host.find('%'));
  if (::inet_pton(AF_INET6, std::string(host).c_str(), &v6) != 1) return "";
  return Text(v6, port);
}

std::string SourceOf(const std::string& peer) {
  const std::string host = peer.substr(0, peer.find(' '));
  in6_addr address{};
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1 || IN6_IS_ADDR_V4MAPPED(&address)) {
    return host;
  }
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t(0));
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, &address, text, sizeof(text));
  return text;
}

std::shared_ptr<ConnectionUse> ConnectionUsers::Opened(const std::string& peer, uint64_t number) {
  auto use = std::make_shared<ConnectionUse>();
  const MutexLock lock(mutex_);
  users_[peer] = {number, "", use};
  return use;
}

void ConnectionUsers::Used(const std::string& peer, const std::string& account) {
  const MutexLock lock(mutex_);
  const auto found = users_.find(peer);
  if (found != users_.end() && found->second.account.empty()) found->second.account = account;
}

std::string ConnectionUsers::Of(const std::string& peer) const {
  const MutexLock lock(mutex_);
  const auto found = users_.find(peer);
  return found == users_.end() ? "" : found->second.account;
}

std::shared_ptr<ConnectionUse> ConnectionUsers::UseOf(const std::string& peer) const {
  const MutexLock lock(mutex_);
  const auto found = users_.find(peer);
  return found == users_.end() ? std::make_shared<ConnectionUse>() : found->second.use;
}

void ConnectionUsers::Closed(const std::string& peer, uint64_t number) {
  const MutexLock lock(mutex_);
  const auto found = users_.find(peer);
  if (found != users_.end() && found->second.number == number) users_.erase(found);
}

}  // namespace trainyard::controller
