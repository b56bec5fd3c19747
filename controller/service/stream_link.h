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

  explicit StreamLink(Reactor* reactor) : reactor_(reactor) {}

  // Reports of one worker that are read and not stored.
  static constexpr int kWindow = 64;

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
  std::deque<v1::ConnectResponse> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> ack_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> close_ ABSL_GUARDED_BY(mutex_);
  v1::ConnectResponse writing_ ABSL_GUARDED_BY(mutex_);
  int storing_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::ConnectRequest* held_ ABSL_GUARDED_BY(mutex_) = nullptr;  // To be read into later.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trainyard::controller
