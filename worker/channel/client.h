// The trainer's end of its local socket (docs/formats.md). It owns a thread that connects, and that
// reconnects whenever the connection breaks. Only Get and Flush wait.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/channel/messages.h"
#include "worker/channel/patience.h"

namespace trainyard::channel {

// Thread-safe.
class ChannelClient {
 public:
  struct Options {
    std::string path;
    Hello hello;
    // How many messages are kept until the daemon acknowledges them: ten minutes without a daemon
    // at 160 steps a second. Above this number the oldest step records are dropped. Ready, set and
    // checkpoint messages stay.
    size_t max_kept = 100'000;
    // File that keeps the messages while no daemon takes them (unsent.h); empty: none.
    std::string unsent = "";
    absl::Duration retry = absl::Milliseconds(100);  // Between attempts to connect.
    // Returns the content of the next heartbeat. Called on the client's thread; must not block.
    // Empty: no heartbeats are sent.
    std::function<Progress()> progress = nullptr;
    absl::Duration beat = kBeat;  // Between heartbeats.
    // Called once, on the client's thread; must not block.
    std::function<void()> on_stop = nullptr;
  };

  // Returns without waiting for a connection.
  static std::unique_ptr<ChannelClient> Create(Options options);
  // Closes the connection. Messages that were not acknowledged are in Options::unsent.
  virtual ~ChannelClient() = default;

  virtual void SendReady(const Ready& ready) = 0;
  virtual void SendStep(const Step& step) = 0;
  virtual void SendCheckpoint(const Checkpoint& checkpoint) = 0;

  // Rendezvous. Get waits until somebody has set the key. DEADLINE_EXCEEDED: nobody did in time;
  // the message names the key. CANCELLED: the daemon asked the rank to stop meanwhile.
  virtual void Set(const std::string& key, const std::string& value) = 0;
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;

  virtual bool stop_requested() const = 0;
  // For how long there has been no daemon; zero while connected.
  virtual absl::Duration disconnected_for() const = 0;
  // Waits until all messages are acknowledged. DEADLINE_EXCEEDED: the message says how many are
  // not.
  virtual absl::Status Flush(absl::Duration timeout) = 0;
};

}  // namespace trainyard::channel
