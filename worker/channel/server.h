// The daemon's end of a rank's local socket (docs/formats.md). Each rank has its own server, which
// owns a thread.
//
// A trainer that loses the connection reconnects and repeats the messages that were not
// acknowledged. Messages arrive in order and at least once, so receivers must tell repeated `step`
// and `checkpoint` messages by their step number. A daemon that restarts makes a new server on the
// same path, and the trainer finds it.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/channel/messages.h"

namespace trainyard::channel {

class ChannelServer {
 public:
  struct Options {
    // Path of the socket, of any length. The directory must exist. A stale file at the path is
    // replaced.
    std::string path;
    // A trainer whose hello names another job, epoch or rank is refused: its connection is closed.
    std::string job_id;
    uint64_t epoch = 0;
    uint32_t rank = 0;
    // Returns whether this process may be the trainer; empty: any process may. Called on the
    // server's thread. The check is needed because the path of a socket is no secret, and no
    // sandbox forbids connecting.
    std::function<bool(pid_t)> admits = nullptr;
  };

  // Called on the server's thread, one at a time. A message is acknowledged when its callback
  // returns. Callbacks may call SendStop and SendValue, and must not destroy the server. Empty
  // callbacks are skipped.
  struct Callbacks {
    std::function<void(const Hello&)> hello = nullptr;  // Called for every connection.
    std::function<void(const Ready&)> ready = nullptr;
    std::function<void(const Step&)> step = nullptr;
    std::function<void(const Checkpoint&)> checkpoint = nullptr;
    std::function<void(const Set&)> set = nullptr;
    std::function<void(const Get&)> get = nullptr;  // Answer with SendValue, at once or later.
    std::function<void(const Progress&)> progress = nullptr;
    // The last connection that had sent a hello has ended. The trainer has ended or will reconnect.
    std::function<void()> disconnected = nullptr;
  };

  static absl::StatusOr<std::unique_ptr<ChannelServer>> Create(Options options,
                                                               Callbacks callbacks);
  virtual ~ChannelServer() = default;  // Stops the thread and removes the socket file.

  // Any thread may call both; neither blocks. A stop is remembered and repeated on every later
  // connection. A value goes to the connected trainer only; after a reconnect the trainer asks
  // again.
  virtual void SendStop() = 0;
  virtual void SendValue(const std::string& key, const std::string& value) = 0;
};

}  // namespace trainyard::channel
