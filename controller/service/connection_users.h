// Remembers which caller uses which connection, and what came of the bytes that it sent. When there
// is no room for another connection, the acceptor closes some of the caller who has the most. So
// nobody keeps others out, neither callers who are let in nor peers who are not.

#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"

namespace trainyard::controller {

// Returns the address and the port of a connection's peer. Each peer has exactly one such text.
std::string PeerOf(const sockaddr_storage& address);
// Returns the same text for gRPC's name of the peer: "ipv4:10.0.0.7:51312", "ipv6:%5B::1%5D:80".
// Empty: the name has neither form.
std::string PeerOf(absl::string_view grpc_peer);
// Returns where a peer comes from: its address without the port, and of an IPv6 address the first
// half, because one machine may have all addresses of that half.
std::string SourceOf(const std::string& peer);

// Counts of one connection's calls and bytes that reached a handler, and whether bytes wait. The
// handlers' side and the acceptor's side tell each other.
struct ConnectionUse {
  std::atomic<uint64_t> useful_bytes = 0;  // Of calls and messages that reached a handler.
  std::atomic<uint64_t> calls_begun = 0;   // Calls that reached a handler.
  std::atomic<uint64_t> calls_ended = 0;   // Those of them that have ended.
  std::atomic<bool> unread = false;        // The peer has sent bytes that gRPC has not read.
};

// Thread-safe.
class ConnectionUsers {
 public:
  // The account of the controller's own user, whose connections are never closed.
  static constexpr char kOwner[] = "local";

  // The connection `number`, from `peer`, was accepted. An earlier one from there is over.
  std::shared_ptr<ConnectionUse> Opened(const std::string& peer, uint64_t number);
  // Notes that a call of `account` came by an open connection, which is its first caller's. A call
  // may come after Closed, and then leaves no trace.
  void Used(const std::string& peer, const std::string& account);
  // Returns whose the connection is. Empty: nobody has called yet, or the connection is not open.
  std::string Of(const std::string& peer) const;
  // Never null: of a connection that is not open, nobody reads the counts.
  std::shared_ptr<ConnectionUse> UseOf(const std::string& peer) const;
  void Closed(const std::string& peer, uint64_t number);

 private:
  struct User {
    uint64_t number = 0;
    std::string account;
    std::shared_ptr<ConnectionUse> use;  // Shared: a call may outlive its connection.
  };

  mutable Mutex mutex_;
  std::map<std::string, User> users_ ABSL_GUARDED_BY(mutex_);  // By peer.
};

}  // namespace trainyard::controller
