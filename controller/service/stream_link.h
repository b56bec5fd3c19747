// The flow of a worker's stream. Sending: a queue of orders in front of one write at a time, and
// the acknowledgements, of which only the newest matters. Reading: as long as not too much of what
// was read waits to be stored, so that a disk that stalls stalls the workers, and fills no memory
// here.

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/workers/messages.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

// Thread-safe. Shared by the reactor and by whoever holds an order for the worker: it outlives the
// stream, and then does nothing.
class StreamLink final : public WorkerLink {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>;

  // `context`: of the reactor's call.
  StreamLink(Reactor* reactor, grpc::ServerContextBase& context)
      : reactor_(reactor), context_(context) {}

  // Reports of one worker that are read and not stored.
  static constexpr int kWindow = 64;
  // What waits to be sent to one worker. A worker that reads nothing is given up beyond it.
  static constexpr size_t kMostOrders = 4096;
  static constexpr size_t kMostOrderBytes = 32 << 20;  // Twice what ranks of one job may say.

  void Send(Order order) override;
  void Close(absl::Status why) override;
  bool holding() const override;

  // From the reactor.
  void Read(v1::ConnectRequest* into);  // The next message, as soon as the window has room.
  void Storing();                       // What was read waits to be stored.
  // It is, or never will be. `sequence` > 0 is acknowledged.
  void Stored(uint64_t sequence, const absl::Status& status);
  void OnWriteDone(bool ok);
  void OnDone();  // The reactor is about to go.

 private:
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // Null once it is done.
  grpc::ServerContextBase& context_;          // Lives as long as the reactor.
  std::deque<v1::ConnectResponse> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<uint64_t> ack_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> close_ ABSL_GUARDED_BY(mutex_);
  v1::ConnectResponse writing_ ABSL_GUARDED_BY(mutex_);
  int storing_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::ConnectRequest* held_ ABSL_GUARDED_BY(mutex_) = nullptr;  // To be read into later.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trainyard::controller
