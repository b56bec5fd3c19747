// Accepts the connections of a gRPC server, in place of gRPC 1.51's own accept loop. That loop has
// no limit on connections, never accepts again once the process has run out of descriptors, and
// begins more handshakes than the process can finish (newcomers.h). Later, the acceptor cuts off
// connections that make gRPC work for nothing (flood_guard.h).

#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/file_descriptor.h"
#include "common/mutex.h"
#include "common/net/listener.h"
#include "controller/service/connection_users.h"
#include "controller/service/flood_guard.h"
#include "controller/service/newcomers.h"
#include "controller/service/waiting_room.h"

namespace trainyard::controller {

// The connections that were handed to gRPC and that gRPC has not closed yet. gRPC does not say when
// it closes a connection, so this class looks at the descriptor: the connection has ended if the
// descriptor is closed or names another socket. Not thread-safe.
class OpenConnections {
 public:
  explicit OpenConnections(ConnectionUsers& users) : users_(users) {}

  // Returns the counts of what reaches a handler.
  std::shared_ptr<ConnectionUse> Add(int fd, const std::string& peer);
  // Returns whether fewer than `most` connections are open. Makes a system call for each only if
  // there seem to be as many as `most`: otherwise, an ended connection is forgotten when its
  // descriptor is given out again.
  bool FewerThan(size_t most);
  // Closes some of the oldest connections of the caller who has the most, if that caller has more
  // than anybody needs.
  void MakeRoom();
  // Ends a connection at once. gRPC reads nothing more of it, not even what has arrived.
  void Cut(int fd);
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

// Returns how many connections the process's limit of descriptors allows. Leaves descriptors for
// the store, the log, backups and the metrics page. At least 16.
size_t MostConnections();

class Acceptor {
 public:
  // Binds every address that the host's name resolves to. Peers wait in the kernel's queue until
  // Start. `users` must outlive the acceptor. UNAVAILABLE: this process cannot listen on the
  // address; the message says why.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Address& address,
                                                          ConnectionUsers& users);
  // Leaves the accepted connections open.
  ~Acceptor();

  const Address& address() const { return listeners_.front().address(); }  // With the real port.
  // The memory that all connections together may use. It grows with their number, so that each has
  // its buffers. Requests that arrive at the same time share a fixed part. Beyond the quota, gRPC
  // resets calls with RESOURCE_EXHAUSTED.
  const grpc::ResourceQuota& quota() const { return quota_; }

  // Starts a thread that hands connections to `server`. Call this once. At most `most` connections
  // are open at a time. When there is no room, further peers wait in the kernel's queue, and the
  // caller with the most connections loses some of them.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server, size_t most);

 private:
  Acceptor(std::vector<Listener> listeners, FileDescriptor stop, ConnectionUsers& users);
  void Run(size_t most);
  // Accepts a connection of each listener that has one. Returns for how long to accept no other.
  absl::Duration AcceptFrom(absl::Span<const pollfd> listeners, size_t most, absl::Duration now);
  // RESOURCE_EXHAUSTED: no further connection can be accepted at present.
  absl::Status AcceptOne(const Listener& listener, size_t most);
  void HandOver(Newcomer newcomer);  // To gRPC.
  bool Owes(const std::string& peer, absl::Duration now);
  void LogChange(const absl::Status& accepted);
  // Cuts off those who make gRPC work for nothing.
  void Watch();
  void CutFloods(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns when to log again. Not done by the guard's thread: to write a line may take long.
  absl::Duration LogCuts(absl::Duration now);

  grpc::ResourceQuota quota_;
  const std::vector<Listener> listeners_;
  const FileDescriptor stop_;  // An eventfd.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  // Used by thread_ alone: these six.
  Newcomers newcomers_;
  absl::Duration crowd_look_;  // When to ask them again.
  WaitingRoom waiting_;
  size_t connections_ = 0;
  bool full_ = false;
  absl::Duration log_cuts_;
  Mutex mutex_;  // Never held while gRPC is called to do work.
  OpenConnections open_ ABSL_GUARDED_BY(mutex_);
  FloodGuard guard_;  // Used with mutex_ held, but for fd().
  // Connections, since the last line in the log.
  size_t cut_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t not_let_in_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread watch_;  // A thread of its own: a flood can keep the other one in gRPC.
  std::thread thread_;
};

}  // namespace trainyard::controller
