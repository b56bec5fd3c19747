// The table of an HTTP server's connections. It decides which connections must end: those that take
// too long, and, when the server is full, those that keep others out. It has no sockets itself.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"

struct sockaddr;

namespace trainyard {

// A page has a few readers, each of whom is served within milliseconds. 64 connections bound the
// memory (8 KiB each, and the answers) and the descriptors that strangers can take.
inline constexpr size_t kMostConnections = 64;
// Many readers may share one address, because they are behind one NAT. Half of all connections is
// enough for hundreds of them, since a connection ends with its answer. The other half stays free,
// so that no single address can fill the server.
inline constexpr size_t kMostConnectionsPerAddress = kMostConnections / 2;
// The time from the start of the connection to the end of the request's headers, including the TLS
// handshake. A reader needs a few round trips. This is a deadline and not a limit on silence, so a
// peer that sends one byte a second is cut off as well.
inline constexpr absl::Duration kRequestWithin = absl::Seconds(5);
// The time from there to the end of the answer. By default Prometheus waits 10 s for a page.
inline constexpr absl::Duration kAnswerWithin = absl::Seconds(10);

// Returns the text by which the connections of one peer are counted: the IPv4 address, or the first
// 64 bits of an IPv6 address, because one machine has as many addresses below those bits as it
// wants.
std::string PeerKey(const sockaddr& address);

// Not thread-safe. A connection is named by its descriptor.
class HttpConnections {
 public:
  explicit HttpConnections(const Clock& clock) : clock_(clock) {}

  void Add(int fd, const std::string& peer);
  void RequestComplete(int fd);  // From now on its answer is being sent.
  void Remove(int fd);
  bool empty() const { return open_.empty(); }

  // Whether one more connection from `peer` is within the limits.
  bool HasRoom(const std::string& peer) const;
  // Returns the connection to end so that a connection from `peer` gets room: the one that has
  // waited longest for its complete request, among those of `peer` if it has its full share. So a
  // peer that holds connections open without requests loses them to others. Absent: all connections
  // are being answered.
  std::optional<int> InTheWayOf(const std::string& peer) const;
  // Returns the connections whose deadlines have passed.
  std::vector<int> Overdue() const;

 private:
  struct Connection {
    std::string peer;
    absl::Duration deadline;  // A reading of clock_.Monotonic().
    bool waiting = true;      // For its complete request.
  };
  size_t CountOf(const std::string& peer) const;

  const Clock& clock_;
  std::map<int, Connection> open_;
};

}  // namespace trainyard
