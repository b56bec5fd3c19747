// A socket that accepts TCP connections and never blocks.

#pragma once

#include <sys/socket.h>

#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/roots.h"

namespace trainyard {

struct AcceptedSocket {
  FileDescriptor socket;  // Non-blocking, and closed on exec.
  sockaddr_storage peer = {};
  socklen_t peer_bytes = sizeof(sockaddr_storage);
};

class Listener {
 public:
  // Listens on the address. Port 0 picks a free port. If a name has several addresses, the first
  // usable one is taken. UNAVAILABLE: none can be listened on; the message says why.
  static absl::StatusOr<Listener> Listen(const Address& address);

  const Address& address() const { return address_; }  // With the real port.
  int fd() const { return socket_.get(); }

  // Accepts one connection. UNAVAILABLE: no peer waits. RESOURCE_EXHAUSTED: the process or the
  // machine has no descriptor or no memory for a connection now; the peers stay in the queue.
  absl::StatusOr<AcceptedSocket> Accept() const;

 private:
  Listener(FileDescriptor socket, Address address);

  FileDescriptor socket_;
  Address address_;
};

}  // namespace trainyard
