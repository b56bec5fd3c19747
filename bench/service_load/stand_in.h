// A worker as its controller sees it, without a machine behind it.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "security/certificates.h"
#include "trainyard/v1/worker.grpc.pb.h"
#include "worker/service/reconnect.h"

namespace trainyard {

// What has happened since somebody looked. Thread-safe.
class Tally {
 public:
  void Answered(absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() { ++beats_; }
  // Streams that have begun, and neither ended nor registered their worker.
  int64_t connecting() const { return connecting_; }
  void Connecting(int more) { connecting_ += more; }
  // A stream, of a worker that was registered by it or not yet.
  void Ended(bool registered) { ++(registered ? lost_ : failed_); }
  std::string Line(int64_t registered) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::vector<absl::Duration> answers_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> connecting_ = 0, lost_ = 0, failed_ = 0, beats_ = 0;
};

struct Fleet {
  std::string controller;  // HOST:PORT.
  std::string authority;   // PEM.
};

// Two threads use a stand-in: one connects, because that takes a while, and one does the rest.
class StandIn {
 public:
  StandIn(const Fleet& fleet, std::string id, Tally& tally);
  ~StandIn();

  // Gets a certificate. To be called before everything else.
  absl::Status Join(const std::string& token);
  // Connects, if that is due.
  void Connect();
  // Beats, waits or gives up, as is due at `now`.
  void Work(absl::Duration now);
  bool registered() const;

 private:
  class Stream;
  enum class Phase { kWaiting, kToConnect, kConnected };

  const Fleet& fleet_;
  const std::string id_;
  Tally& tally_;
  Identity identity_;
  Reconnect reconnect_{absl::Milliseconds(100), absl::Seconds(4)};
  uint64_t beats_ = 0;
  absl::Duration due_;                          // When to go on to what comes next.
  std::atomic<Phase> phase_ = Phase::kWaiting;  // In kToConnect the rest is the other thread's.
  std::shared_ptr<Stream> stream_;              // While connected.
  bool beating_ = false;
};

}  // namespace trainyard
