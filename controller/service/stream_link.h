// Controls what is sent and read on a worker's stream. Orders wait in a queue, and one message is
// written at a time. Of acknowledgements, only the newest is sent. Reading pauses while too many
// reports wait to be stored: a disk that stalls then stalls the workers, and does not fill the
// controller's memory.

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/service/connection_users.h"
#include "controller/workers/messages.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

// Thread-safe. Shared by the reactor and by everybody who has orders for the worker. The link may
// outlive the stream; it then does nothing.
class StreamLink final : public WorkerLink {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>;

  // `context` is that of the reactor's call, and `use` that of its connection.
  StreamLink(Reactor* reactor, grpc::ServerContextBase& context,
             std::shared_ptr<const ConnectionUse> use)
      : reactor_(reactor), context_(context), use_(std::move(use)) {}

  // How many reports of one worker may be read and not yet stored.
  static constexpr int kWindow = 64;
  // How much may wait to be sent to one worker. The stream of a worker that reads too slowly ends.
  static constexpr size_t kMostOrders = 4096;
  static constexpr size_t kMostOrderBytes = 32 << 20;  // Twice what ranks of one job may say.

  void Send(Order order) override;
  void Close(absl::Status why) override;
  bool holding() const override;

  // Called by the reactor.
  void Read(v1::ConnectRequest* into);  // Reads the next message once the window has room.
  void Storing();                       // The message that was read waits to be stored.
  // The message is stored, or never will be. Acknowledges `sequence` if it is not 0.
  void Stored(uint64_t sequence, const absl::Status& status);
  void OnWriteDone(bool ok);
  void OnDone();  // The reactor is about to go.

 private:
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // Null once it is done.
  grpc::ServerContextBase& context_;          // Lives as long as the reactor.
  const std::shared_ptr<const ConnectionUse> use_;
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
