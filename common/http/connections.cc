#include "common/http/connections.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace trainyard {
namespace {

std::string Bytes(const void* begin, size_t count) {
  return std::string(static_cast<const char*>(begin), count);
}

}  // namespace

std::string PeerKey(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return Bytes(&reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  if (address.sa_family != AF_INET6) return "";
  const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  // A socket for both families has IPv4 addresses in the last four bytes.
  return IN6_IS_ADDR_V4MAPPED(&host) ? Bytes(&host.s6_addr[12], 4) : Bytes(&host, 8);
}

void HttpConnections::Add(int fd, const std::string& peer) {
  open_[fd] = {.peer = peer, .deadline = clock_.Monotonic() + kRequestWithin};
}

void HttpConnections::RequestComplete(int fd) {
  const auto found = open_.find(fd);
  if (found == open_.end()) return;
  found->second.waiting = false;
  found->second.deadline = clock_.Monotonic() + kAnswerWithin;
}

void HttpConnections::Remove(int fd) { open_.erase(fd); }

size_t HttpConnections::CountOf(const std::string& peer) const {
  return size_t(std::count_if(open_.begin(), open_.end(),
                              [&](const auto& entry) { return entry.second.peer == peer; }));
}

bool HttpConnections::HasRoom(const std::string& peer) const {
  return open_.size() < kMostConnections && CountOf(peer) < kMostConnectionsPerAddress;
}

std::optional<int> HttpConnections::InTheWayOf(const std::string& peer) const {
  const bool of_this_peer = CountOf(peer) >= kMostConnectionsPerAddress;
  std::optional<int> oldest;
  for (const auto& [fd, connection] : open_) {
    if (!connection.waiting || (of_this_peer && connection.peer != peer)) continue;
    if (!oldest || connection.deadline < open_.at(*oldest).deadline) oldest = fd;
  }
  return oldest;
}

std::vector<int> HttpConnections::Overdue() const {
  const absl::Duration now = clock_.Monotonic();
  std::vector<int> overdue;
  for (const auto& [fd, connection] : open_) {
    if (connection.deadline <= now) overdue.push_back(fd);
  }
  return overdue;
}

}  // namespace trainyard
