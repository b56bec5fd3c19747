// Adapter of Gloo's connections and messages, which throw. A message ends, or the wait for it ends
// when the connection breaks, at whatever point the message was.

#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/mutex.h"

namespace trainyard {

// The reason why an operation cannot continue.
struct GlooFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The connections of one rank, shared by all of its groups. Peers are world ranks.
class GlooMesh {
 public:
  using Buffer = ::gloo::transport::UnboundBuffer;

  // `timeout` is that of one operation.
  GlooMesh(std::shared_ptr<::gloo::rendezvous::Context> context, absl::Duration timeout);
  ~GlooMesh();

  absl::Duration timeout() const { return timeout_; }

  std::unique_ptr<Buffer> NewBuffer(void* data, size_t bytes) {
    return context_->createUnboundBuffer(data, bytes);
  }

  // Between these two calls, a wait for the buffer ends if the mesh is aborted or loses `peer`.
  void Add(Buffer* buffer, int peer);
  void Remove(Buffer* buffer);

  void Abort(const std::string& why);
  bool aborted();
  void ThrowIfAborted();

  // The reason why the connection is broken; empty while it is not.
  std::string WhyBroken(int peer);

  void Close();

 private:
  std::vector<std::unique_ptr<Buffer>> PostSentinels();
  void Watch();

  const std::shared_ptr<::gloo::rendezvous::Context> context_;
  const absl::Duration timeout_;
  Mutex sentinels_mutex_;  // For one wait at a time. Taken after mutex_ if both are held.
  // By peer: receives of messages that nobody sends. They end when the connection ends.
  const std::vector<std::unique_ptr<Buffer>> sentinels_ ABSL_GUARDED_BY(sentinels_mutex_);
  Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  std::map<Buffer*, int> peers_ ABSL_GUARDED_BY(mutex_);  // By buffer in use.
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar end_;
  std::thread watch_;
};

struct Slice {
  size_t begin, bytes;
};

// The messages of one group that are under way. All must be posted before any is waited for. A
// message keeps its memory until Wait returns or throws GlooFailure.
class GlooTransfers {
 public:
  explicit GlooTransfers(GlooMesh& mesh);
  ~GlooTransfers();

  // A message is received by the receive that has the same tag.
  void Send(const void* data, Slice slice, int peer, uint64_t tag);
  void Receive(void* data, Slice slice, int peer, uint64_t tag);

  void Wait(absl::Duration timeout);

 private:
  struct Posted;

  void Post(void* data, Slice slice, int peer, uint64_t tag, bool receives);
  std::map<int, std::string> Broken() const;
  std::set<int> Missing(const std::map<int, std::string>& broken);

  GlooMesh& mesh_;
  std::vector<Posted> posted_;
};

}  // namespace trainyard
