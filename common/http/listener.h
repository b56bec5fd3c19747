// A socket that accepts TCP connections without ever blocking.

#pragma once

#include <sys/socket.h>

#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/roots.h"

namespace trainyard {

struct AcceptedSocket {
  FileDescriptor socket;  // Does not block, and is closed on exec.
  sockaddr_storage peer = {};
  socklen_t peer_bytes = sizeof(sockaddr_storage);
};

class Listener {
 public:
  // Port 0 picks a free port. Of several addresses that a name has, the first that can be listened
  // on is taken. UNAVAILABLE: none can be; the message says why.
  static absl::StatusOr<Listener> Listen(const Address& address);

  const Address& address() const { return address_; }  // With the real port.
  int fd() const { return socket_.get(); }

  // UNAVAILABLE: nobody waits to be accepted. RESOURCE_EXHAUSTED: the process or the machine has no
  // descriptor or no memory for a connection now; who waits goes on waiting.
  absl::StatusOr<AcceptedSocket> Accept() const;

 private:
  Listener(FileDescriptor socket, Address address);

  FileDescriptor socket_;
  Address address_;
};

}  // namespace trainyard
