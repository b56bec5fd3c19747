// Finds connections that make gRPC work for nothing. Below the gate, gRPC 1.51 bounds neither what
// a peer may send nor for how long it reads from one connection while others wait (docs/adr/0020).
//
// For each connection, the guard compares the bytes and the streams that gRPC took from the peer
// with the messages and calls that reached a handler. What is left over is work for nothing
// (fruitless_work.h). It is charged to the caller, or to the source address while nobody has
// called. Whoever owes too much loses the connections that go on.

#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/file_descriptor.h"
#include "controller/service/connection_users.h"
#include "controller/service/fruitless_work.h"
#include "controller/service/stream_counts.h"

namespace trainyard::controller {

// Not thread-safe.
class FloodGuard {
 public:
  explicit FloodGuard(const ConnectionUsers& users);
  FloodGuard(const FloodGuard&) = delete;
  FloodGuard& operator=(const FloodGuard&) = delete;

  // Becomes readable when a connection has new bytes.
  int fd() const { return epoll_.get(); }
  // Whether some connection must be looked at again even if no new bytes come.
  bool waiting() const { return !active_.empty(); }
  // Whether a connection without a call has sent more than 512 bytes. The next look is then due
  // within a millisecond, in which gRPC can begin hundreds of streams.
  bool hurries() const { return hurries_; }

  // Watches the new connection `fd`, until it is closed.
  void Add(int fd, const std::string& peer, std::shared_ptr<ConnectionUse> use, absl::Duration now);
  // Looks at the connections that have new or unread bytes. Returns those that must go. gRPC may
  // have closed them meanwhile. `computed`: the processor time that the process has used so far.
  std::vector<int> Look(absl::Duration now, absl::Duration computed);

  // Whether the peer's address owes too much.
  bool Owes(const std::string& peer, absl::Duration now) const;

 private:
  struct Connection {
    std::string peer;
    std::shared_ptr<ConnectionUse> use;
    absl::Duration since;
    int64_t transport = 0;  // gRPC's number of it, once that is known.
    uint64_t counted = 0;   // How many bytes gRPC had read when the streams were counted.
    uint64_t started = 0;   // Streams, at that time.
    bool busy = false;      // There were more than before, and more than calls.
    bool gone = false;      // It was found to have to go, or is closed.
    bool known = false;     // Somebody has called.
    bool wide = false;      // The buffer is that of a caller.
    bool paid = false;      // The handshake was charged.
    FruitlessWork work;
    double holds = 0;     // Bytes, in strangers_hold_.
    absl::Duration held;  // What waiting streams cost, in `debt` and in the payer's.
    Debt debt;
    std::string payer;  // The caller's account, or NameOfSource.
  };

  struct Seen {
    int fd;
    FruitlessWork::Bytes bytes = {};
    bool open = false;
  };

  // Returns false if the descriptor is no connection any more.
  bool Measure(int fd, FruitlessWork::Bytes& bytes) const;
  // `share`: how much of the processor time since the last look one that stands still may have had.
  bool MustGo(int fd, Connection& connection, const FruitlessWork::Bytes& bytes, absl::Duration now,
              absl::Duration share);
  absl::Duration CountStreams(Connection& connection, absl::Duration now);
  // Counts what the connection holds among what strangers hold, if it is a stranger's.
  void CountHeld(Connection& connection);
  // Ends strangers' connections, those that hold most, until all together hold little enough.
  void BoundStrangers(absl::Duration now, std::vector<int>& go);
  // Charges for handshakes without a call, and makes connections with waiting streams active.
  void LookAtQuietOnes(absl::Duration now);
  void FindPayer(Connection& connection, absl::Duration now);
  // Lets a caller who owes little send more at once.
  void Widen(int fd, Connection& connection, absl::Duration now);
  // Charges the connection, and the caller or source that pays for it.
  void Charge(Connection& connection, absl::Duration work, absl::Duration now);
  void End(Connection& connection, absl::Duration now);
  void ChargeHandshake(Connection& connection, absl::Duration now);
  Debt& DebtOf(const std::string& payer);

  const ConnectionUsers& users_;
  const FileDescriptor epoll_;
  std::map<int, Connection> connections_;  // By descriptor. Some may be closed.
  std::map<std::string, int> by_peer_;     // Their descriptors.
  bool hurries_ = false;
  double strangers_hold_ = 0;  // Bytes of connections by which nobody has called.
  absl::Duration computed_;    // At the last look.
  std::set<int> active_;       // Those with unread bytes, new streams, or waiting streams.
  std::deque<std::pair<absl::Duration, int>> young_;  // When each of them was new.
  Transports transports_;
  absl::Duration learn_;               // When to ask them again.
  std::map<std::string, Debt> debts_;  // By caller or source address.
  absl::Duration sweep_;  // When to look at waiting streams, and to forget who owes nothing.
};

}  // namespace trainyard::controller
