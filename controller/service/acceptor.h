// Accepts the connections of a gRPC server. gRPC 1.51's own accept loop has no limit on
// connections, never accepts again once the process has run out of descriptors, and begins more
// handshakes than it can finish (newcomers.h).

#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/address.h"
#include "controller/service/connection_users.h"
#include "controller/service/newcomers.h"

namespace trainyard::controller {

// A descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }
  int Release();

 private:
  int fd_;
};

// The connections that were handed to gRPC and that gRPC has not closed yet. gRPC tells nobody when
// it closes one, so each is looked up: a descriptor that is closed, or names another socket now,
// has ended. Not thread-safe.
class OpenConnections {
 public:
  explicit OpenConnections(ConnectionUsers& users) : users_(users) {}

  void Add(int fd, const std::string& peer);
  // Whether there are fewer than `most`. Costs a system call for each open one, but only where they
  // seem to be that many: most that ended are forgotten when their descriptor is given out again.
  bool FewerThan(size_t most);
  // Closes the oldest connections of whoever has the most, where that is more than anybody needs.
  void MakeRoom();
  size_t size() const { return open_.size(); }

 private:
  struct Open {
    uint64_t inode = 0;
    uint64_t number = 0;  // Grows with each connection.
    std::string peer;
    bool is(int fd) const;  // Whether the descriptor still is this connection.
  };

  ConnectionUsers& users_;
  uint64_t last_ = 0;
  std::map<int, Open> open_;  // By descriptor.
};

// How many connections the process's limit of descriptors allows, beside what the store, the log,
// backups and the metrics page may need. At least 16.
size_t MostConnections();

class Acceptor {
 public:
  // Binds every address that the host's name resolves to. Peers queue until Start. UNAVAILABLE: the
  // address cannot be listened on; the message says why.
  // `users` outlives the acceptor.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& address,
                                                          ConnectionUsers& users);
  // Connections that were accepted live on.
  ~Acceptor();

  const Address& address() const { return address_; }  // With the real port.
  // What the connections may hold in memory. It grows with their number, so that each has its
  // buffers, and requests that arrive at once share a fixed room. gRPC resets calls beyond it with
  // RESOURCE_EXHAUSTED.
  const grpc::ResourceQuota& quota() const { return quota_; }

  // Once. Hands connections to `server` from a thread of its own, `most` at a time. Further peers
  // wait in the kernel's queue until a connection ends; whoever has the most of them loses some
  // then.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server, size_t most);

 private:
  Acceptor(Address address, ConnectionUsers& users);
  void Run(size_t most);
  // RESOURCE_EXHAUSTED: no further connection can be accepted for now.
  absl::Status AcceptOne(int listener, size_t most);
  void LogChange(const absl::Status& accepted);

  Address address_;
  grpc::ResourceQuota quota_;
  std::vector<Socket> listeners_;
  Socket stop_;  // An eventfd.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  OpenConnections open_;  // The thread's, as are the next two.
  Newcomers newcomers_;
  bool full_ = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
