// The sending half of a worker's stream: a queue of orders in front of one write at a time, and the
// acknowledgements, of which only the newest matters.

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "controller/workers/messages.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

// Thread-safe. Shared by the reactor and by whoever holds an order for the worker: it outlives the
// stream, and then does nothing.
class StreamLink final : public WorkerLink {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>;

  explicit StreamLink(Reactor* reactor) : reactor_(reactor) {}

  void Send(Order order) override;
  void Close(absl::Status why) override;
  void Ack(uint64_t sequence);  // Everything up to it is durable.

  // From the reactor.
  void OnWriteDone(bool ok);
  void OnDone();  // The reactor is about to go.

 private:
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // Null once it is done.
  std::deque<v1::ConnectResponse> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> ack_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> close_ ABSL_GUARDED_BY(mutex_);
  v1::ConnectResponse writing_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trainyard::controller
