// Which connections an HTTP server has, and which of them must end: those that take too long, and
// those that are in the way of others when the server is full. A table without sockets.

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
// From the connection's begin to the end of the request's headers, with the TLS handshake. A reader
// needs a few round trips. This is a deadline and not a limit on silence: a peer that sends one
// byte a second is cut off as well.
inline constexpr absl::Duration kRequestWithin = absl::Seconds(5);
// From there to the end of the answer. Prometheus by default waits 10 s for a page.
inline constexpr absl::Duration kAnswerWithin = absl::Seconds(10);

// The text by which connections of one peer are counted: the IPv4 address, or the first 64 bits of
// an IPv6 address, because one machine has as many addresses below those as it wants.
std::string PeerKey(const sockaddr& address);

// Not thread-safe. A connection is named by its descriptor.
class HttpConnections {
 public:
  explicit HttpConnections(const Clock& clock) : clock_(clock) {}

  void Add(int fd, const std::string& peer);
  void RequestComplete(int fd);  // Its answer is sent from now on.
  void Remove(int fd);
  bool empty() const { return open_.empty(); }

  // Whether one more connection from `peer` is within the limits.
  bool HasRoom(const std::string& peer) const;
  // The connection whose end makes room for one from `peer`: that which has waited longest for its
  // request to be complete. Who holds connections open without a request therefore loses them to
  // others. Absent: all are being answered.
  std::optional<int> InTheWayOf(const std::string& peer) const;
  // The connections whose time is over.
  std::vector<int> Overdue() const;

 private:
  struct Connection {
    std::string peer;
    absl::Duration deadline;  // A reading of clock_.Monotonic().
    bool waiting = true;      // For its request.
  };
  size_t CountOf(const std::string& peer) const;

  const Clock& clock_;
  std::map<int, Connection> open_;
};

}  // namespace trainyard
