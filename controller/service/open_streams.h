// The open streams of all services. Each caller may have a limited number of them. A stream ends,
// even if it is silent, when its caller is no longer let in, or when the rights of the caller are
// no longer those that the caller had when the stream began.

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
  // Ends a stream with this error. Called on another thread; the stream may be over by then.
  using End = std::function<void(const absl::Status&)>;

  // `most`: how many streams one caller may have. The user of the controller's own machine may have
  // any number. The gate must outlive this object.
  OpenStreams(const Gate& gate, size_t most) : gate_(gate), most_(most) {}

  // Called when a stream begins. Returns false if its caller has too many; Check then says so, too.
  bool Add(grpc::ServerContextBase& context);
  // Called when a stream is over.
  void Remove(grpc::ServerContextBase& context);

  // Returns whether the stream may go on. RESOURCE_EXHAUSTED: its caller has too many streams.
  // UNAVAILABLE: the caller's rights have changed. Other errors: those of Gate::CallerOf.
  absl::Status Check(grpc::ServerContextBase& context) const;
  // Says how Sweep ends the stream. Sweep cancels a stream that has no `end`, and one that is still
  // open at the next Sweep because its peer takes no message.
  void OnEnd(grpc::ServerContextBase& context, End end);

  // Ends the streams that may not go on. Call this every second.
  void Sweep();

 private:
  struct Stream {
    absl::StatusOr<Principal> caller;  // As it was when the stream began.
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
