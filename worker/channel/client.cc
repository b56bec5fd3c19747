#include "worker/channel/client.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/mutex.h"
#include "worker/channel/line_socket.h"
#include "worker/channel/unsent.h"

namespace trainyard::channel {
namespace {

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

// The most bytes of lines that wait in the socket, so that a slow daemon costs no memory.
constexpr size_t kOutgoingBytes = 256 << 10;

struct Kept {
  uint64_t sequence;
  bool droppable;
  std::string line;
};

class Client final : public ChannelClient {
 public:
  explicit Client(Options options)
      : options_(std::move(options)), unsent_(options_.unsent), thread_([this] { Run(); }) {}

  ~Client() override {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
      closed_.NotifyAll();
    }
    wakeup_.Signal();
    thread_.join();
    const MutexLock lock(mutex_);
    Journal();
  }

  void SendReady(const Ready& ready) override { Keep(ready, false); }
  void SendStep(const Step& step) override { Keep(step, true); }
  void SendCheckpoint(const Checkpoint& checkpoint) override { Keep(checkpoint, false); }
  void Set(const std::string& key, const std::string& value) override {
    Keep(channel::Set{key, value}, false);
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    MutexLock lock(mutex_);
    asked_[key] = std::nullopt;
    requests_.push_back(key);
    wakeup_.Signal();
    const absl::Duration deadline = RealClock().Monotonic() + timeout;
    while (!stop_ && !asked_[key].has_value() && changed_.WaitUntil(mutex_, deadline)) continue;
    const std::optional<std::string> value = std::move(asked_[key]);
    asked_.erase(key);
    if (value) return *value;
    if (stop_) return absl::CancelledError(absl::StrCat("asked to stop while waiting for ", key));
    return absl::DeadlineExceededError(
        absl::StrCat("no peer has set '", key, "' within ", absl::FormatDuration(timeout)));
  }

  bool stop_requested() const override {
    const MutexLock lock(mutex_);
    return stop_;
  }

  absl::Duration disconnected_for() const override {
    const MutexLock lock(mutex_);
    if (connected_) return absl::ZeroDuration();
    return absl::FromChrono(std::chrono::steady_clock::now() - disconnected_since_);
  }

  absl::Status Flush(absl::Duration timeout) override {
    MutexLock lock(mutex_);
    const absl::Duration deadline = RealClock().Monotonic() + timeout;
    while (!kept_.empty() && changed_.WaitUntil(mutex_, deadline)) continue;
    if (kept_.empty()) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat(kept_.size(), " messages were not acknowledged by the worker daemon"));
  }

 private:
  void Keep(Message message, bool droppable) {
    {
      const MutexLock lock(mutex_);
      const uint64_t sequence = ++last_sequence_;
      kept_.push_back({sequence, droppable, Encode({std::move(message), sequence})});
      CHECK(kept_.back().line.size() < kMaxLineBytes) << kept_.back().line.size() << " bytes";
      if (kept_.size() > options_.max_kept) {
        const auto oldest = std::find_if(kept_.begin(), kept_.end(),
                                         [](const Kept& kept) { return kept.droppable; });
        if (oldest != kept_.end()) kept_.erase(oldest);
      }
      if (!connected_) Journal();
    }
    wakeup_.Signal();
  }

  // Appends the kept messages to the file that are not in it yet.
  void Journal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Kept& kept : kept_) {
      if (kept.sequence > journaled_) unsent_.Append(kept.line);
    }
    journaled_ = last_sequence_;
  }

  void Run() {
    while (!closing()) {
      if (!socket_) Connect();
      while (socket_ && !closing()) {
        QueueOutgoing();
        QueueBeat();
        WaitAndServe();
      }
      // Waits also after a broken connection, so that a daemon which refuses this trainer is not
      // called without a pause.
      WaitToRetry();
    }
  }

  bool closing() const {
    const MutexLock lock(mutex_);
    return closing_;
  }

  void Connect() {
    absl::StatusOr<FileDescriptor> fd = ConnectUnix(options_.path);
    if (!fd.ok()) return;
    socket_.emplace(*std::move(fd));
    socket_->Queue(Encode({options_.hello}));
    next_beat_ = SteadyClock::now();
    const MutexLock lock(mutex_);
    connected_ = true;
    sent_sequence_ = 0;
    requests_.clear();
    for (const auto& [key, value] : asked_) requests_.push_back(key);
  }

  void Disconnect() {
    socket_.reset();
    const MutexLock lock(mutex_);
    connected_ = false;
    disconnected_since_ = std::chrono::steady_clock::now();
    Journal();
  }

  void QueueOutgoing() {
    const MutexLock lock(mutex_);
    for (const Kept& kept : kept_) {
      if (socket_->outgoing_bytes() >= kOutgoingBytes) break;
      if (kept.sequence <= sent_sequence_) continue;
      socket_->Queue(kept.line);
      sent_sequence_ = kept.sequence;
    }
    for (const std::string& key : requests_) socket_->Queue(Encode({channel::Get{key}}));
    requests_.clear();
  }

  void QueueBeat() {
    if (!options_.progress || SteadyClock::now() < next_beat_) return;
    next_beat_ = SteadyClock::now() + absl::ToChronoMilliseconds(options_.beat);
    JournalWhatWaits();
    // A daemon that reads nothing gets no further heartbeats.
    if (socket_->outgoing_bytes() < kOutgoingBytes) socket_->Queue(Encode({options_.progress()}));
  }

  // Saves messages that the daemon has not acknowledged since the last beat. It may have stopped
  // working and may die without acknowledging them.
  void JournalWhatWaits() {
    const MutexLock lock(mutex_);
    if (!kept_.empty() && kept_.front().sequence <= last_at_beat_) Journal();
    last_at_beat_ = last_sequence_;
  }

  // Returns the time in milliseconds for poll, rounded up.
  int MillisecondsUntilBeat() const {
    if (!options_.progress) return -1;
    const absl::Duration left = absl::FromChrono(next_beat_ - SteadyClock::now());
    return int(absl::ToInt64Milliseconds(std::max(left, absl::ZeroDuration()))) + 1;
  }

  void WaitAndServe() {
    const short events = socket_->wants_write() ? POLLIN | POLLOUT : POLLIN;
    pollfd polled[] = {{wakeup_.get(), POLLIN, 0}, {socket_->fd(), events, 0}};
    ::poll(polled, std::size(polled), MillisecondsUntilBeat());
    wakeup_.Clear();
    Serve();
  }

  // Does not wait for the wakeup: otherwise messages sent without a daemon would make this thread
  // spin.
  void WaitToRetry() {
    MutexLock lock(mutex_);
    const absl::Duration deadline = RealClock().Monotonic() + options_.retry;
    while (!closing_ && closed_.WaitUntil(mutex_, deadline)) continue;
  }

  void Serve() {
    std::vector<std::string> lines;
    absl::Status status = socket_->Read(lines);
    for (const std::string& line : lines) {
      const absl::StatusOr<Envelope> envelope = Decode(line);
      if (envelope.ok()) Handle(envelope->message);
    }
    if (status.ok()) status = socket_->Write();
    if (!status.ok()) Disconnect();
  }

  void Handle(const Message& message) {
    bool first_stop = false;
    {
      const MutexLock lock(mutex_);
      if (const Ack* ack = std::get_if<Ack>(&message)) {
        while (!kept_.empty() && kept_.front().sequence <= ack->up_to) kept_.pop_front();
        // Also while later messages wait, because the file must not go on behind a gap.
        if (kept_.empty() || kept_.front().sequence > journaled_) unsent_.Clear();
      } else if (const Value* value = std::get_if<Value>(&message)) {
        const auto asked = asked_.find(value->key);
        if (asked != asked_.end()) asked->second = value->value;
      } else if (std::holds_alternative<Stop>(message)) {
        first_stop = !std::exchange(stop_, true);
      }
      changed_.NotifyAll();
    }
    if (first_stop && options_.on_stop) options_.on_stop();
  }

  const Options options_;
  Wakeup wakeup_;
  std::optional<LineSocket> socket_;  // This and the next are used by the client's thread alone.
  SteadyTime next_beat_;

  mutable Mutex mutex_;
  CondVar changed_, closed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime disconnected_since_ ABSL_GUARDED_BY(mutex_) = SteadyClock::now();
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sent_sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // On this connection.
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);       // By sequence.
  UnsentFile unsent_ ABSL_GUARDED_BY(mutex_);
  uint64_t journaled_ ABSL_GUARDED_BY(mutex_) = 0;     // The file has all messages up to this one.
  uint64_t last_at_beat_ ABSL_GUARDED_BY(mutex_) = 0;  // last_sequence_ at the last beat.
  std::map<std::string, std::optional<std::string>> asked_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);  // To ask for on this connection.

  std::thread thread_;  // Last, because it uses all members above.
};

}  // namespace

std::unique_ptr<ChannelClient> ChannelClient::Create(Options options) {
  return std::make_unique<Client>(std::move(options));
}

}  // namespace trainyard::channel
