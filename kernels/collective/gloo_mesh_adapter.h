// Adapter of Gloo's connections and messages, which throw. A message ends, or its wait does when
// the connection breaks, wherever the message was.
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

// Why an operation cannot go on.
struct GlooFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The connections of one rank, which all of its groups share. Peers are world ranks.
class GlooMesh {
 public:
  using Buffer = ::gloo::transport::UnboundBuffer;

  // `timeout`: of one operation.
  GlooMesh(std::shared_ptr<::gloo::rendezvous::Context> context, absl::Duration timeout);
  ~GlooMesh();

  absl::Duration timeout() const { return timeout_; }

  std::unique_ptr<Buffer> NewBuffer(void* data, size_t bytes) {
    return context_->createUnboundBuffer(data, bytes);
  }

  // Between the two, a wait for the buffer ends when the mesh is aborted or loses `peer`.
  void Add(Buffer* buffer, int peer);
  void Remove(Buffer* buffer);

  void Abort(const std::string& why);
  bool aborted();
  void ThrowIfAborted();

  // What has befallen the connection; empty while it holds.
  std::string WhyBroken(int peer);

  void Close();

 private:
  std::vector<std::unique_ptr<Buffer>> PostSentinels();
  void Watch();

  const std::shared_ptr<::gloo::rendezvous::Context> context_;
  const absl::Duration timeout_;
  Mutex sentinels_mutex_;  // For one wait at a time; behind mutex_ where both are held.
  // By peer: receives of what nobody sends. They end when the connection does.
  const std::vector<std::unique_ptr<Buffer>> sentinels_ ABSL_GUARDED_BY(sentinels_mutex_);
  Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  std::map<Buffer*, int> peers_ ABSL_GUARDED_BY(mutex_);  // By buffer under way.
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar end_;
  std::thread watch_;
};

struct Slice {
  size_t begin, bytes;
};

// Messages of one group under way. All are posted before any is waited for; a message in flight
// keeps its memory until Wait returns or throws GlooFailure.
class GlooTransfers {
 public:
  explicit GlooTransfers(GlooMesh& mesh);
  ~GlooTransfers();

  // A message meets the one of its tag.
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
