// Who calls by which connection. Where there is no room for a further one, those of whoever has the
// most are closed: nobody who is let in, and nobody who is not, keeps others out.

#pragma once

#include <sys/socket.h>

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"

namespace trainyard::controller {

// The address and port of a connection's other end; one text for one peer.
std::string PeerOf(const sockaddr_storage& address);
// The same of what gRPC calls the peer: "ipv4:10.0.0.7:51312", "ipv6:%5B::1%5D:80". Empty: it is
// neither.
std::string PeerOf(absl::string_view grpc_peer);

// Thread-safe.
class ConnectionUsers {
 public:
  // The account of the controller's own user, whose connections are never closed.
  static constexpr char kOwner[] = "local";

  // A call of `account` came by a connection, which is the first caller's.
  void Used(const std::string& peer, const std::string& account);
  bool Knows(const std::string& peer) const;
  // Whose the connection is; empty: nobody has called yet.
  std::string Of(const std::string& peer) const;
  void Forget(const std::string& peer);

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> accounts_ ABSL_GUARDED_BY(mutex_);  // By peer.
};

}  // namespace trainyard::controller
