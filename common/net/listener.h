// Sockets that accept TCP connections and never block.

#pragma once

#include <sys/socket.h>

#include <vector>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "common/net/address.h"

namespace trainyard {

struct AcceptedSocket {
  FileDescriptor socket;  // Non-blocking, and closed on exec.
  sockaddr_storage peer = {};
  socklen_t peer_bytes = sizeof(sockaddr_storage);
};

struct ListenOptions {
  int backlog = SOMAXCONN;  // How many peers may wait in the kernel's queue.
  int receive_buffer = 0;   // Bytes; each connection inherits this. 0: the kernel's default.
};

class Listener {
 public:
  // Listens on every address that the host's name resolves to and that this machine has. Port 0
  // picks a free port, which is the same for all of them. The result is not empty. ALREADY_EXISTS:
  // the port is taken. UNAVAILABLE: this machine has no such address, or cannot listen there; the
  // message says why.
  static absl::StatusOr<std::vector<Listener>> Listen(const Address& address,
                                                      const ListenOptions& options = {});

  const Address& address() const { return address_; }  // With the real port.
  int fd() const { return socket_.get(); }

  // Accepts one connection. UNAVAILABLE: no peer waits. RESOURCE_EXHAUSTED: the process or the
  // machine has no descriptor or no memory for a connection now; the peers stay in the queue.
  absl::StatusOr<AcceptedSocket> Accept() const;

 private:
  static absl::StatusOr<std::vector<Listener>> ListenOnce(const Address& address,
                                                          const ListenOptions& options);
  Listener(FileDescriptor socket, Address address);

  FileDescriptor socket_;
  Address address_;
};

}  // namespace trainyard
