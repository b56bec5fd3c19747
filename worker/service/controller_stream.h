// The worker's stream to the controller: connects, registers, beats, carries the daemon's outbox
// out and orders in, and comes back after every break with a growing, jittered pause. Losing the
// controller never touches a rank.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/address.h"
#include "common/mutex.h"
#include "security/credentials.h"
#include "worker/daemon/daemon.h"

namespace trainyard {

struct StreamOptions {
  std::string controller;  // HOST:PORT.
  // What the next connection shows.
  std::function<absl::StatusOr<Credential>()> credential;
  std::function<void()> refused = {};  // The controller does not know it.
  std::string worker_id;
  std::string instance_id;
  std::string hostname;
  std::vector<std::string> roots = {};  // Where paths of jobs may lie.
  std::string metrics_url;
  absl::Duration detach = {};                            // How long ranks may outlive this daemon.
  absl::Duration first_pause = absl::Milliseconds(100);  // Before the first reconnect,
  absl::Duration longest_pause = absl::Seconds(4);       // doubling up to this.
  std::function<void()> on_registered;  // On every connection, on a thread of the stream.
  // After each message that was sent, on a thread of the stream; a beat is the longest time between
  // two messages.
  std::function<void(absl::Duration beat)> on_sent = {};
};

// Thread-safe.
class ControllerStream {
 public:
  // PERMISSION_DENIED when the address may not be dialled without TLS.
  static absl::StatusOr<std::unique_ptr<ControllerStream>> Create(StreamOptions options,
                                                                  Daemon& daemon);
  ~ControllerStream();  // Breaks off.

 private:
  class Connection;

  ControllerStream(StreamOptions options, Address address, Daemon& daemon);
  void Run();
  bool ConnectOnce();  // Returns whether it got as far as being registered.
  void NoteLost(const absl::Status& why);

  const StreamOptions options_;
  const Address address_;  // Of options_.controller.
  Daemon& daemon_;
  Mutex mutex_;
  CondVar wake_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  Connection* connection_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The one that ConnectOnce runs now.
  bool away_ = false;  // The outage has been logged. Of thread_ alone.
  std::thread thread_;
};

}  // namespace trainyard
