// The daemon's end of a rank's local socket (docs/formats.md). One server a rank; it owns a thread.
//
// A trainer that loses the connection comes back and repeats what was not acknowledged: messages
// arrive in order and at least once, so a receiver takes `step` and `checkpoint` by their step
// number. A daemon that restarts makes a new server on the same path, and the trainer finds it.

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
    std::string path;  // Of the socket, of any length; its directory exists. A stale file there is
                       // replaced.
    std::string job_id;  // A hello of another job, epoch or rank is refused: its connection closed.
    uint64_t epoch = 0;
    uint32_t rank = 0;
    // Whether this process may be the trainer; empty: any may. Called on the server's thread. The
    // path of a socket is no secret, and no sandbox forbids to connect.
    std::function<bool(pid_t)> admits = nullptr;
  };

  // Called on the server's thread, one at a time; a message is acknowledged when its callback
  // returns. They must not destroy the server; they may call SendStop and SendValue. Empty ones are
  // skipped.
  struct Callbacks {
    std::function<void(const Hello&)> hello = nullptr;  // On every connection.
    std::function<void(const Ready&)> ready = nullptr;
    std::function<void(const Step&)> step = nullptr;
    std::function<void(const Checkpoint&)> checkpoint = nullptr;
    std::function<void(const Set&)> set = nullptr;
    std::function<void(const Get&)> get = nullptr;  // Answer with SendValue, at once or later.
    std::function<void(const Progress&)> progress = nullptr;
    // The trainer ended, or is about to reconnect: no connection that has greeted is left.
    std::function<void()> disconnected = nullptr;
  };

  static absl::StatusOr<std::unique_ptr<ChannelServer>> Create(Options options,
                                                               Callbacks callbacks);
  virtual ~ChannelServer() = default;  // Stops the thread, removes the socket file.

  // Both from any thread; neither blocks. A stop is remembered and repeated on every later
  // connection. A value is for the connected trainer; one that reconnects asks again.
  virtual void SendStop() = 0;
  virtual void SendValue(const std::string& key, const std::string& value) = 0;
};

}  // namespace trainyard::channel
