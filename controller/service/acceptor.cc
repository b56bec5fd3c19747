#include "controller/service/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {

// How much a newcomer may send at once: gRPC works on all of it before anybody notices. Callers may
// send more (flood_guard.cc).
constexpr int kNewcomerBuffer = 2 << 10;

// The kernel cuts this to its own limit, net.core.somaxconn.
constexpr int kBacklog = 4096;

// Descriptors for other purposes than connections: the store (3 files), its backup, its witness,
// the log and gRPC itself (3 a core) need about 50, and the metrics page has up to 64 connections.
constexpr rlim_t kOwnDescriptors = 128;
constexpr rlim_t kFewestConnections = 16;

// Measured: gRPC counts 8 KB for a connection with one stream.
constexpr size_t kConnectionBytes = 48 << 10;
// For the requests of all connections together.
constexpr size_t kRequestBytes = 16 << 20;

// Connections that everybody keeps. A person or a program needs only a few.
constexpr size_t kEnoughForOne = 16;

// How soon an acceptor that had no room, or no descriptor, tries again.
constexpr absl::Duration kPause = absl::Milliseconds(50);

// A connection is young for as long as its handshake may take (server.cc).
constexpr absl::Duration kYoung = absl::Seconds(8);
// At most this many young connections may have unread bytes: about a tenth of a second's work for
// one core.
constexpr size_t kMostNewcomers = 64;
constexpr size_t kMostInWaitingRoom = 512;
// Looking costs a system call for each young connection, and two for each that has new bytes.
constexpr absl::Duration kLookEvery = absl::Milliseconds(5);
constexpr absl::Duration kHurriedLook = absl::Milliseconds(1);
constexpr absl::Duration kLogCutsEvery = absl::Seconds(1);
// Of the guard's thread, so much longer does a pause take than the look before it.
constexpr int kPauseForEachLook = 2;

// That this process has used so far.
absl::Duration ProcessorTime() {
  timespec used{};
  CHECK(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0) << errno;
  return absl::DurationFromTimespec(used);
}

// What poll takes: -1 is for ever. Rounded up, so that the time has come afterwards.
int Milliseconds(absl::Duration time) {
  if (time == absl::InfiniteDuration()) return -1;
  const absl::Duration left = std::max(time, absl::ZeroDuration());
  return int(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

// Lets this thread run before all others, where the process may ask for that. A guard that waits
// for a processor while a flood has one bounds nothing: in 1.3 seconds of waiting, gRPC began
// streams of 94 MB.
void RunFirst() {
  sched_param priority{};
  priority.sched_priority = 1;
  ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &priority);
}

}  // namespace

bool OpenConnections::Open::is(int fd) const {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == inode;
}

std::shared_ptr<ConnectionUse> OpenConnections::Add(int fd, const std::string& peer) {
  // The connection that had this descriptor before is over.
  if (const auto old = open_.find(fd); old != open_.end()) {
    users_.Closed(old->second.peer, old->second.number);
    open_.erase(old);
  }
  struct stat status {};
  CHECK(::fstat(fd, &status) == 0) << errno;
  open_[fd] = {status.st_ino, ++last_, peer};
  return users_.Opened(peer, last_);
}

bool OpenConnections::FewerThan(size_t most) {
  if (open_.size() < most) return true;
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->second.is(it->first)) {
      ++it;
      continue;
    }
    users_.Closed(it->second.peer, it->second.number);
    it = open_.erase(it);
  }
  return open_.size() < most;
}

void OpenConnections::MakeRoom() {
  std::map<std::string, std::map<uint64_t, int>> by_account;  // Descriptors, oldest first.
  for (const auto& [fd, open] : open_) by_account[users_.Of(open.peer)][open.number] = fd;
  by_account.erase(ConnectionUsers::kOwner);
  const auto most = std::max_element(
      by_account.begin(), by_account.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == by_account.end() || most->second.size() <= kEnoughForOne) return;
  size_t close = (most->second.size() - kEnoughForOne + 7) / 8;
  for (const auto& [number, fd] : most->second) {
    if (close-- == 0) break;
    if (open_[fd].is(fd)) ::shutdown(fd, SHUT_RDWR);  // gRPC notices, and closes it.
  }
}

void OpenConnections::Cut(int fd) {
  const auto found = open_.find(fd);
  if (found == open_.end() || !found->second.is(fd)) return;
  // To disconnect discards what has arrived, and resets the peer. After a shutdown, gRPC would
  // still read megabytes.
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (::connect(fd, &nobody, sizeof(nobody)) != 0) ::shutdown(fd, SHUT_RDWR);
}

size_t MostConnections() {
  rlimit limit{};
  CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0) << errno;
  return std::max(limit.rlim_cur, kOwnDescriptors + kFewestConnections) - kOwnDescriptors;
}

Acceptor::Acceptor(std::vector<Listener> listeners, FileDescriptor stop, ConnectionUsers& users)
    : quota_("calls"),
      listeners_(std::move(listeners)),
      stop_(std::move(stop)),
      newcomers_(kYoung),
      waiting_(std::min(kMostInWaitingRoom, MostConnections() / 8)),
      open_(users),
      guard_(users) {
  quota_.Resize(kRequestBytes);
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Address& address,
                                                           ConnectionUsers& users) {
  absl::StatusOr<std::vector<Listener>> listeners =
      Listener::Listen(address, {.backlog = kBacklog, .receive_buffer = kNewcomerBuffer});
  if (absl::IsAlreadyExists(listeners.status())) {
    return absl::UnavailableError(absl::StrCat(
        listeners.status().message(),
        ". Is another controller running there? Otherwise give this one another port by "
        "--listen"));
  }
  RETURN_IF_ERROR(listeners.status());
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoStatus(errno, "make", "an eventfd");
  return std::unique_ptr<Acceptor>(new Acceptor(*std::move(listeners), std::move(stop), users));
}

Acceptor::~Acceptor() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
  watch_.join();
}

void Acceptor::Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server,
                     size_t most) {
  CHECK(!thread_.joinable());
  server_ = std::move(server);
  thread_ = std::thread([this, most] { Run(most); });
  watch_ = std::thread([this] { Watch(); });
}

void Acceptor::Run(size_t most) {
  // Poll ignores what has the descriptor -1.
  std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  polled.resize(1 + listeners_.size(), {.fd = -1, .events = POLLIN, .revents = 0});
  absl::Duration accept;  // When to do so again, at the earliest.
  for (;;) {
    absl::Duration now = RealClock().Monotonic();
    absl::Duration wake = now < accept ? accept : absl::InfiniteDuration();
    wake = std::min({wake, waiting_.next(), LogCuts(now)});
    for (size_t i = 0; i < listeners_.size(); ++i) {
      polled[1 + i].fd = now < accept ? -1 : listeners_[i].fd();
    }
    if (::poll(polled.data(), polled.size(), Milliseconds(wake - now)) < 0) {
      CHECK(errno == EINTR) << errno;
      continue;
    }
    if (polled.front().revents != 0) return;
    now = RealClock().Monotonic();
    const auto owes = [&](const std::string& peer) { return Owes(peer, now); };
    for (Newcomer& newcomer : waiting_.LetIn(now, owes)) HandOver(std::move(newcomer));
    if (now >= accept) accept = now + AcceptFrom(absl::MakeSpan(polled).subspan(1), most, now);
  }
}

void Acceptor::Watch() {
  std::array<pollfd, 2> polled = {{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = guard_.fd(), .events = POLLIN, .revents = 0}}};
  bool waiting = false;
  absl::Duration pause;
  RunFirst();
  while (polled.front().revents == 0) {
    // While bytes are unread, a look is due whether or not new ones come.
    if (!waiting && ::poll(polled.data(), 2, -1) < 0) continue;
    {
      const MutexLock lock(mutex_);
      const absl::Duration now = RealClock().Monotonic();
      CutFloods(now);
      waiting = guard_.waiting();
      const absl::Duration took = RealClock().Monotonic() - now;
      pause = std::max(guard_.hurries() ? kHurriedLook : kLookEvery, kPauseForEachLook * took);
    }
    ::poll(polled.data(), 1, Milliseconds(pause));
  }
}

absl::Duration Acceptor::AcceptFrom(absl::Span<const pollfd> listeners, size_t most,
                                    absl::Duration now) {
  const auto waits = [](const pollfd& listener) { return listener.revents != 0; };
  if (std::none_of(listeners.begin(), listeners.end(), waits)) return absl::ZeroDuration();
  if (now >= crowd_look_) {
    crowd_look_ = now + kLookEvery;
    if (newcomers_.Crowded(kMostNewcomers, now)) return kLookEvery;
  }
  for (size_t i = 0; i < listeners.size(); ++i) {
    if (!waits(listeners[i])) continue;
    const absl::Status accepted = AcceptOne(listeners_[i], most);
    LogChange(accepted);
    if (!accepted.ok()) return kPause;
  }
  return absl::ZeroDuration();
}

void Acceptor::CutFloods(absl::Duration now) {
  for (const int fd : guard_.Look(now, ProcessorTime())) {
    open_.Cut(fd);
    ++cut_;
  }
}

absl::Duration Acceptor::LogCuts(absl::Duration now) {
  if (now < log_cuts_) return log_cuts_;
  size_t cut = 0, not_let_in = 0;
  {
    const MutexLock lock(mutex_);
    cut = std::exchange(cut_, 0);
    not_let_in = std::exchange(not_let_in_, 0);
  }
  log_cuts_ = now + kLogCutsEvery;
  if (cut + not_let_in > 0) {
    LogWarning("connections_cut_off",
               {{"reason", "work for nothing"}, {"connections", cut}, {"not_let_in", not_let_in}});
  }
  return log_cuts_;
}

absl::Status Acceptor::AcceptOne(const Listener& listener, size_t most) {
  {
    const MutexLock lock(mutex_);
    if (!open_.FewerThan(most - waiting_.size())) {
      open_.MakeRoom();
      return absl::ResourceExhaustedError("the limit of open files allows no more connections");
    }
  }
  absl::StatusOr<AcceptedSocket> accepted = listener.Accept();
  if (absl::IsResourceExhausted(accepted.status())) return accepted.status();
  // All other errors concern one peer, which has gone.
  if (!accepted.ok()) return absl::OkStatus();
  // The peer has given up while it waited in the kernel's queue.
  if (PeerIsGone(accepted->socket.get())) return absl::OkStatus();
  Newcomer newcomer{std::move(accepted->socket), listener.fd(), PeerOf(accepted->peer)};
  const absl::Duration now = RealClock().Monotonic();
  if (!Owes(newcomer.peer, now)) {
    HandOver(std::move(newcomer));
  } else if (!waiting_.Add(std::move(newcomer), now)) {
    const MutexLock lock(mutex_);
    ++not_let_in_;
  }
  return absl::OkStatus();
}

bool Acceptor::Owes(const std::string& peer, absl::Duration now) {
  const MutexLock lock(mutex_);
  return guard_.Owes(peer, now);
}

void Acceptor::HandOver(Newcomer newcomer) {
  const int fd = newcomer.socket.Release();
  newcomers_.Add(fd, RealClock().Monotonic());
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  {
    const MutexLock lock(mutex_);
    guard_.Add(fd, newcomer.peer, open_.Add(fd, newcomer.peer), RealClock().Monotonic());
    connections_ = open_.size();
  }
  // gRPC may do other connections' work in these calls, for as long as there is some.
  quota_.Resize(kRequestBytes + connections_ * kConnectionBytes);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = newcomer.listener;
  connection.fd = fd;
  server_->HandleNewConnection(&connection);
}

void Acceptor::LogChange(const absl::Status& accepted) {
  if (full_ == !accepted.ok()) return;
  full_ = !accepted.ok();
  if (full_) {
    LogWarning("not_accepting", {{"reason", accepted.message()}, {"connections", connections_}});
  } else {
    LogInfo("accepting_again", {{"connections", connections_}});
  }
}

}  // namespace trainyard::controller
