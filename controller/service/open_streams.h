// The streams that are open, of all services. No caller has more than a share of them, and none
// goes on once its caller is not let in any more, or may do something else than when it began,
// however silent the stream is.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/access/gate.h"

namespace trainyard::controller {

// Thread-safe.
class OpenStreams {
 public:
  // Ends a stream with this error. Called from another thread, and perhaps after the stream.
  using End = std::function<void(const absl::Status&)>;

  // `most`: of one caller; the user of the controller's own machine has any number. The gate
  // outlives the streams.
  OpenStreams(const Gate& gate, size_t most) : gate_(gate), most_(most) {}

  // A stream begins, and is over. False: its caller has too many, and Check will say so.
  bool Add(grpc::ServerContextBase& context);
  void Remove(grpc::ServerContextBase& context);

  // Whether the stream may go on. RESOURCE_EXHAUSTED: its caller has too many. UNAVAILABLE: what
  // the caller may do has changed. Others: Gate::CallerOf's.
  absl::Status Check(grpc::ServerContextBase& context) const;
  // How Sweep ends the stream. Without it, and where that takes longer than to the next Sweep, as
  // for a peer that takes no message, the stream is cancelled.
  void OnEnd(grpc::ServerContextBase& context, End end);

  // Ends what must not go on. Call every second.
  void Sweep();

 private:
  struct Stream {
    absl::StatusOr<Principal> caller;  // As the stream began.
    bool admitted = true;
    End end;
    bool ended = false;
  };
  absl::Status CheckLocked(const grpc::ServerContextBase& context, const Stream& stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Gate& gate_;
  const size_t most_;
  mutable Mutex mutex_;
  std::map<grpc::ServerContextBase*, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> counts_ ABSL_GUARDED_BY(mutex_);  // By account.
};

}  // namespace trainyard::controller
