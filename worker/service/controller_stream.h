// The worker's stream to the controller. The stream registers the worker, sends beats and the
// daemon's outbox, and passes orders to the daemon. After every break it connects again, after a
// pause that grows and is jittered. Losing the controller never touches a rank.

#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "security/credentials.h"
#include "worker/daemon/daemon.h"

namespace trainyard {

struct StreamOptions {
  std::string controller;  // HOST:PORT.
  // Returns the credential for the next connection.
  std::function<absl::StatusOr<Credential>()> credential;
  std::function<void()> refused = {};  // Called when the controller does not know the credential.
  std::string worker_id;
  std::string instance_id;
  std::string hostname;
  std::vector<std::string> roots = {};  // Directories below which jobs' paths may lie.
  std::string metrics_url;
  absl::Duration detach = {};                            // How long ranks may outlive this daemon.
  absl::Duration first_pause = absl::Milliseconds(100);  // Before the first reconnect,
  absl::Duration longest_pause = absl::Seconds(4);       // doubling up to this.
  std::function<void()> on_registered;  // Called at every connection, on a thread of the stream.
  // Called after each message that was sent, on a thread of the stream. A beat is the longest time
  // between two messages.
  std::function<void(absl::Duration beat)> on_sent = {};
};

// Thread-safe.
class ControllerStream {
 public:
  // PERMISSION_DENIED: the address may not be dialled without TLS.
  static absl::StatusOr<std::unique_ptr<ControllerStream>> Create(StreamOptions options,
                                                                  Daemon& daemon);
  ~ControllerStream();  // Ends the connection.

 private:
  class Connection;

  ControllerStream(StreamOptions options, Address address, Daemon& daemon);
  void Run();
  bool ConnectOnce();  // Returns whether the worker was registered.
  void NoteLost(const absl::Status& why);

  const StreamOptions options_;
  const Address address_;  // Of options_.controller.
  Daemon& daemon_;
  Mutex mutex_;
  CondVar wake_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  Connection* connection_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The one that ConnectOnce runs now.
  std::set<absl::StatusCode> logged_;  // Errors of this outage. Used by thread_ alone.
  std::thread thread_;
};

}  // namespace trainyard
