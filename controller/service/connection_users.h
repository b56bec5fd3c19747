// Remembers which caller uses which connection. When there is no room for another connection, the
// acceptor closes some of the caller who has the most. So nobody keeps others out, neither callers
// who are let in nor peers who are not.

#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <map>
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

// Thread-safe.
class ConnectionUsers {
 public:
  // The account of the controller's own user, whose connections are never closed.
  static constexpr char kOwner[] = "local";

  // The connection `number`, from `peer`, was accepted. An earlier one from there is over.
  void Opened(const std::string& peer, uint64_t number);
  // Notes that a call of `account` came by an open connection, which is its first caller's. A call
  // may come after Closed, and then leaves no trace.
  void Used(const std::string& peer, const std::string& account);
  // Returns whose the connection is. Empty: nobody has called yet, or the connection is not open.
  std::string Of(const std::string& peer) const;
  void Closed(const std::string& peer, uint64_t number);

 private:
  struct User {
    uint64_t number = 0;
    std::string account;
  };

  mutable Mutex mutex_;
  std::map<std::string, User> users_ ABSL_GUARDED_BY(mutex_);  // By peer.
};

}  // namespace trainyard::controller
