#include "worker/channel/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_descriptor.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "worker/channel/line_socket.h"

namespace trainyard::channel {
namespace {

// More than one, so that a trainer can reconnect before its old connection is seen to be dead.
constexpr size_t kMaxConnections = 4;

struct Connection {
  explicit Connection(FileDescriptor fd) : socket(std::move(fd)) {}
  LineSocket socket;
  bool greeted = false;  // The peer has sent a valid hello.
  bool told_to_stop = false;
  bool dead = false;
};

// Returns the peer's process. 0: the process is in another namespace.
pid_t ProcessBehind(const FileDescriptor& fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

FileDescriptor SpareDescriptor() {
  return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

template <typename Callback, typename... Arguments>
void Call(const Callback& callback, const Arguments&... arguments) {
  if (callback) callback(arguments...);
}

class Server final : public ChannelServer {
 public:
  Server(Options options, Callbacks callbacks, FileDescriptor listener)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        listener_(std::move(listener)),
        thread_([this] { Run(); }) {}

  ~Server() override {
    {
      const MutexLock lock(mutex_);
      closing_ = true;
    }
    wakeup_.Signal();
    thread_.join();
    ::unlink(options_.path.c_str());
  }

  void SendStop() override {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    wakeup_.Signal();
  }

  void SendValue(const std::string& key, const std::string& value) override {
    {
      const MutexLock lock(mutex_);
      values_.push_back({key, value});
    }
    wakeup_.Signal();
  }

 private:
  void Run() {
    for (;;) {
      std::vector<Value> values;
      {
        const MutexLock lock(mutex_);
        if (closing_) return;
        values.swap(values_);
        stopping_ = stop_;
      }
      for (Connection& connection : connections_) QueueOutgoing(connection, values);
      Poll();
    }
  }

  void QueueOutgoing(Connection& connection, const std::vector<Value>& values) {
    if (!connection.greeted) return;
    for (const Value& value : values) connection.socket.Queue(Encode({value}));
    if (stopping_ && !connection.told_to_stop) {
      connection.socket.Queue(Encode({Stop{}}));
      connection.told_to_stop = true;
    }
  }

  void Poll() {
    std::vector<pollfd> polled = {{wakeup_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const short events = connection.socket.wants_write() ? POLLIN | POLLOUT : POLLIN;
      polled.push_back({connection.socket.fd(), events, 0});
    }
    ::poll(polled.data(), polled.size(), -1);
    wakeup_.Clear();
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      if (polled[i].revents != 0 && !it->dead) Serve(*it);
      const bool ended = it->dead, greeted = it->greeted;
      it = ended ? connections_.erase(it) : std::next(it);
      // If the trainer has reconnected, the late end of its old connection means nothing.
      if (ended && greeted && !HasTrainer()) Call(callbacks_.disconnected);
    }
    if (polled[1].revents != 0) Accept();
  }

  bool HasTrainer() const {
    return std::any_of(connections_.begin(), connections_.end(),
                       [](const Connection& c) { return c.greeted && !c.dead; });
  }

  FileDescriptor AcceptOne() const {
    return FileDescriptor(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }

  void Accept() {
    FileDescriptor fd = AcceptOne();
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE)) return TurnAway();
    turning_away_ = false;
    if (fd.get() < 0 || !Admits(ProcessBehind(fd))) return;
    if (connections_.size() < kMaxConnections) connections_.emplace_back(std::move(fd));
  }

  // Called before a stranger takes a connection that the trainer needs.
  bool Admits(pid_t process) {
    if (!options_.admits || options_.admits(process)) return true;
    if (!std::exchange(refused_, true)) {
      LogWarning(
          "channel_refused",
          {{"socket", options_.path}, {"reason", "not a process of this rank"}, {"pid", process}});
    }
    return false;
  }

  // Without a free descriptor, a waiting connection would wake this thread without end. So the
  // spare descriptor accepts and closes the connection. The trainer comes back later.
  void TurnAway() {
    if (!std::exchange(turning_away_, true)) {
      LogError("channel_turns_away", {{"socket", options_.path}, {"reason", "no descriptor left"}});
    }
    spare_ = FileDescriptor();
    AcceptOne();
    spare_ = SpareDescriptor();
    // Another thread has taken the descriptor that was closed here. Wait a little instead of
    // spinning.
    if (spare_.get() < 0) ::poll(nullptr, 0, 50);
  }

  void Serve(Connection& connection) {
    std::vector<std::string> lines;
    absl::Status status = connection.socket.Read(lines);
    uint64_t handled = 0;
    for (const std::string& line : lines) {
      const absl::Status line_status = Handle(connection, line, handled);
      if (!line_status.ok()) {
        LogWarning("channel_refused",
                   {{"socket", options_.path}, {"reason", line_status.message()}});
        status = line_status;
        break;
      }
    }
    if (handled != 0) connection.socket.Queue(Encode({Ack{handled}}));
    if (status.ok()) status = connection.socket.Write();
    connection.dead = !status.ok();
  }

  absl::Status Handle(Connection& connection, const std::string& line, uint64_t& handled) {
    ASSIGN_OR_RETURN(const Envelope envelope, Decode(line));
    if (const Hello* hello = std::get_if<Hello>(&envelope.message)) {
      return Greet(connection, *hello);
    }
    if (!connection.greeted) return absl::InvalidArgumentError("the first line is not a hello");
    // A reconnected trainer repeats messages that it does not know to be handled.
    if (envelope.sequence == 0 || envelope.sequence > handled_) Dispatch(envelope.message);
    if (envelope.sequence != 0) handled = handled_ = std::max(handled_, envelope.sequence);
    return absl::OkStatus();
  }

  absl::Status Greet(Connection& connection, const Hello& hello) {
    if (hello.job_id != options_.job_id || hello.epoch != options_.epoch ||
        hello.rank != options_.rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("hello: wanted job ", options_.job_id, " epoch ", options_.epoch, " rank ",
                       options_.rank, ", found ", hello.job_id, " ", hello.epoch, " ", hello.rank));
    }
    for (Connection& other : connections_) other.dead |= &other != &connection && other.greeted;
    connection.greeted = true;
    if (hello.pid != std::exchange(pid_, hello.pid)) handled_ = 0;
    Call(callbacks_.hello, hello);
    QueueOutgoing(connection, {});
    return absl::OkStatus();
  }

  void Dispatch(const Message& message) {
    if (const Ready* ready = std::get_if<Ready>(&message)) {
      Call(callbacks_.ready, *ready);
    } else if (const Step* step = std::get_if<Step>(&message)) {
      Call(callbacks_.step, *step);
    } else if (const Checkpoint* checkpoint = std::get_if<Checkpoint>(&message)) {
      Call(callbacks_.checkpoint, *checkpoint);
    } else if (const Set* set = std::get_if<Set>(&message)) {
      Call(callbacks_.set, *set);
    } else if (const Get* get = std::get_if<Get>(&message)) {
      Call(callbacks_.get, *get);
    } else if (const Progress* progress = std::get_if<Progress>(&message)) {
      Call(callbacks_.progress, *progress);
    }
  }

  const Options options_;
  const Callbacks callbacks_;
  const FileDescriptor listener_;
  Wakeup wakeup_;
  // The members below are used by the server's thread alone.
  FileDescriptor spare_ = SpareDescriptor();
  bool turning_away_ = false;
  bool refused_ = false;  // A stranger was refused, which is logged once.
  std::list<Connection> connections_;
  bool stopping_ = false;
  int64_t pid_ = 0;       // Of the trainer that sent the last hello.
  uint64_t handled_ = 0;  // The last message of this trainer that was handled.

  Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Value> values_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // Last, because it uses all members above.
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChannelServer>> ChannelServer::Create(Options options,
                                                                     Callbacks callbacks) {
  ASSIGN_OR_RETURN(FileDescriptor listener, ListenUnix(options.path));
  return std::make_unique<Server>(std::move(options), std::move(callbacks), std::move(listener));
}

}  // namespace trainyard::channel
