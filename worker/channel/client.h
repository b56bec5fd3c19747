// The trainer's end of its local socket (docs/formats.md). It owns a thread that connects, and
// reconnects for as long as it lives; nothing here blocks but Get and Flush.

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
    // Messages kept until the daemon acknowledged them: ten minutes without a daemon at 160 steps a
    // second. Beyond it the oldest step records go; ready, set and checkpoint stay.
    size_t max_kept = 100'000;
    // Where what no daemon takes is kept, too (unsent.h); empty: nowhere.
    std::string unsent = "";
    absl::Duration retry = absl::Milliseconds(100);  // Between attempts to connect.
    // What heartbeats say, asked on the client's thread; must not block. Empty: there are none.
    std::function<Progress()> progress = nullptr;
    absl::Duration beat = kBeat;              // Between them.
    std::function<void()> on_stop = nullptr;  // Once, on the client's thread; must not block.
  };

  // Does not wait for a connection.
  static std::unique_ptr<ChannelClient> Create(Options options);
  virtual ~ChannelClient() = default;  // Closes; what was not acknowledged is in Options::unsent.

  virtual void SendReady(const Ready& ready) = 0;
  virtual void SendStep(const Step& step) = 0;
  virtual void SendCheckpoint(const Checkpoint& checkpoint) = 0;

  // Rendezvous. Get waits until somebody has set the key: DEADLINE_EXCEEDED names the key,
  // CANCELLED when the daemon asked to stop meanwhile.
  virtual void Set(const std::string& key, const std::string& value) = 0;
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;

  virtual bool stop_requested() const = 0;
  // Since when there has been no daemon: zero while connected.
  virtual absl::Duration disconnected_for() const = 0;
  // Waits until everything was acknowledged; DEADLINE_EXCEEDED says how many messages were not.
  virtual absl::Status Flush(absl::Duration timeout) = 0;
};

}  // namespace trainyard::channel
