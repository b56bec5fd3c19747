// Accepts the connections of a gRPC server. gRPC 1.51's own accept loop has no limit on
// connections, never accepts again once the process has run out of descriptors, and begins more
// handshakes than it can finish (newcomers.h).

#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/address.h"
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
  void Add(int fd);
  // Whether there are fewer than `most`. Costs a system call for each open one, but only where they
  // seem to be that many: most that ended are forgotten when their descriptor is given out again.
  bool FewerThan(size_t most);
  size_t size() const { return sockets_.size(); }

 private:
  std::map<int, uint64_t> sockets_;  // Inode by descriptor.
};

// How many connections the process's limit of descriptors allows, beside what the store, the log,
// backups and the metrics page may need. At least 16.
size_t MostConnections();

class Acceptor {
 public:
  // Binds every address that the host's name resolves to. Peers queue until Start. UNAVAILABLE: the
  // address cannot be listened on; the message says why.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& address);
  // Connections that were accepted live on.
  ~Acceptor();

  const Address& address() const { return address_; }  // With the real port.
  // What the connections may hold in memory. It grows with their number, so that each has its
  // buffers, and requests that arrive at once share a fixed room. gRPC resets calls beyond it with
  // RESOURCE_EXHAUSTED.
  const grpc::ResourceQuota& quota() const { return quota_; }

  // Once. Hands connections to `server` from a thread of its own, `most` at a time. Further peers
  // wait in the kernel's queue until a connection ends.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server, size_t most);

 private:
  explicit Acceptor(Address address);
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
