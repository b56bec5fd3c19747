#include "controller/service/flood_guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard::controller {
namespace {

// The bytes of which nothing has come that all strangers' connections together may hold. gRPC may
// take twice as much memory for them. Who sends slowly from many addresses owes little.
constexpr double kMostOfStrangers = 16 << 20;

// What a caller or an address may owe. A twentieth of a core is forgiven.
constexpr absl::Duration kMostDebt = absl::Milliseconds(50);
constexpr double kForgiven = 0.05;
// What one connection may still cost while its caller or address owes more: a handshake and the
// bytes of a first call. If much is owed, there are many who owe, and each may cost little.
constexpr absl::Duration kFree = absl::Milliseconds(3);
constexpr absl::Duration kMuchDebt = absl::Milliseconds(250);
constexpr absl::Duration kFreeOfMany = absl::Microseconds(200);
// Of a thousand connections together, no more than of their payer.
constexpr double kForgivenOfOne = 0.00005;

// How much a caller may send at once, of large requests. The kernel has a limit of its own. What a
// caller sends in one round trip is less: TCP fixed its window to at most 64 KB when the connection
// began with a small buffer.
constexpr int kCallerBuffer = 1 << 20;

// To count the streams of a connection takes 20 microseconds. They are counted each time that so
// many bytes have come: more often once so many of a connection's bytes have led to no call.
constexpr uint64_t kCountEvery = 16 << 10;
constexpr uint64_t kFruitless = 512;
// To ask gRPC for the numbers of connections takes up to a millisecond.
constexpr absl::Duration kLearnEvery = absl::Milliseconds(2);

constexpr absl::Duration kSweepEvery = absl::Seconds(1);

// The price of a connection that has brought no call after so long, or at its end.
constexpr absl::Duration kHandshake = absl::Milliseconds(1);
constexpr absl::Duration kTimeToCall = absl::Milliseconds(500);

// No caller has such a name.
std::string NameOfSource(const std::string& peer) {
  return absl::StrCat("the peers at ", SourceOf(peer));
}

}  // namespace

FloodGuard::FloodGuard(const ConnectionUsers& users)
    : users_(users), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  CHECK(epoll_.valid()) << errno;
}

void FloodGuard::Add(int fd, const std::string& peer, std::shared_ptr<ConnectionUse> use,
                     absl::Duration now) {
  if (const auto old = connections_.find(fd); old != connections_.end()) {
    End(old->second, now);
    strangers_hold_ -= old->second.holds;
    const auto named = by_peer_.find(old->second.peer);
    if (named != by_peer_.end() && named->second == fd) by_peer_.erase(named);
    connections_.erase(old);
  }
  connections_.emplace(fd, Connection{.peer = peer,
                                      .use = std::move(use),
                                      .since = now,
                                      .work = {},
                                      .held = {},
                                      .debt = Debt(kForgivenOfOne),
                                      .payer = NameOfSource(peer)});
  by_peer_[peer] = fd;
  young_.emplace_back(now, fd);
  // The kernel takes the descriptor out when gRPC closes it.
  epoll_event event{};
  // With EPOLLIN alone, the kernel would not tell of bytes that gRPC has read since.
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  event.data.fd = fd;
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) << errno;
}

std::vector<int> FloodGuard::Look(absl::Duration now, absl::Duration computed) {
  std::array<epoll_event, 256> events{};
  int found = 0;
  do {
    found = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), 0);
    for (int i = 0; i < found; ++i) active_.insert(events[size_t(i)].data.fd);
  } while (found == int(events.size()));
  LookAtQuietOnes(now);
  hurries_ = false;
  int standing = 0;
  std::vector<Seen> all;
  for (const int fd : active_) {
    const Connection& connection = connections_.at(fd);
    Seen& seen = all.emplace_back(fd);
    seen.bytes.useful = connection.use->useful_bytes;  // First: what is read may become useful.
    seen.open = Measure(fd, seen.bytes);
    standing += seen.open && connection.work.StandsStill(seen.bytes, now) ? 1 : 0;
  }
  // gRPC works on one of those that it reads no further, and the others wait for it.
  const absl::Duration since = computed - std::exchange(computed_, computed);
  const absl::Duration share = since / std::max(1, standing);
  std::vector<int> go;
  for (const auto& [fd, bytes, open] : all) {
    Connection& connection = connections_.at(fd);
    connection.use->unread = bytes.unread > 0;
    const bool must_go = open && !connection.gone && MustGo(fd, connection, bytes, now, share);
    const bool cut = must_go && connection.payer != ConnectionUsers::kOwner;
    if (cut) {
      go.push_back(fd);
      // Whoever comes from there next may be the same caller.
      if (connection.known) DebtOf(NameOfSource(connection.peer)).Add(connection.debt.At(now), now);
    }
    if ((cut || !open) && !std::exchange(connection.gone, true)) End(connection, now);
    CountHeld(connection);
    hurries_ |= !connection.gone && !connection.known && connection.work.pending() >= kFruitless;
    if (connection.gone || (bytes.unread == 0 && !connection.busy)) active_.erase(fd);
  }
  BoundStrangers(now, go);
  return go;
}

void FloodGuard::CountHeld(Connection& connection) {
  const bool stranger = !connection.known && !connection.gone;
  const double holds = stranger ? connection.work.held() : 0;
  strangers_hold_ += holds - std::exchange(connection.holds, holds);
}

void FloodGuard::BoundStrangers(absl::Duration now, std::vector<int>& go) {
  if (strangers_hold_ <= kMostOfStrangers) return;
  std::vector<std::pair<double, int>> strangers;
  for (auto& [fd, connection] : connections_) {
    if (connection.gone) continue;
    FindPayer(connection, now);
    FruitlessWork::Bytes bytes;
    connection.gone = !Measure(fd, bytes);  // gRPC has closed it.
    if (connection.gone) End(connection, now);
    CountHeld(connection);
    if (connection.holds > 0) strangers.emplace_back(connection.holds, fd);
  }
  std::sort(strangers.begin(), strangers.end(), std::greater<>());
  for (const auto& [holds, fd] : strangers) {
    if (strangers_hold_ <= kMostOfStrangers) break;
    Connection& connection = connections_.at(fd);
    connection.gone = true;
    End(connection, now);
    CountHeld(connection);
    active_.erase(fd);
    go.push_back(fd);
  }
}

void FloodGuard::LookAtQuietOnes(absl::Duration now) {
  for (; !young_.empty() && now - young_.front().first >= kTimeToCall; young_.pop_front()) {
    const auto found = connections_.find(young_.front().second);
    // Another connection may have the descriptor by now. A caller who is found after the cut does
    // not take over what the source owes: others would be let in from there at once.
    if (found->second.since != young_.front().first || found->second.gone) continue;
    FindPayer(found->second, now);
    ChargeHandshake(found->second, now);
  }
  if (now < sweep_) return;
  sweep_ = now + kSweepEvery;
  for (const auto& [fd, connection] : connections_) {
    if (connection.held > absl::ZeroDuration()) active_.insert(fd);
  }
  std::erase_if(debts_,
                [&](const auto& each) { return each.second.At(now) == absl::ZeroDuration(); });
}

bool FloodGuard::Owes(const std::string& peer, absl::Duration now) const {
  const auto found = debts_.find(NameOfSource(peer));
  return found != debts_.end() && found->second.At(now) > kMostDebt;
}

bool FloodGuard::Measure(int fd, FruitlessWork::Bytes& bytes) const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  int waiting = 0;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      ::ioctl(fd, FIONREAD, &waiting) != 0) {
    return false;
  }
  bytes.unread = std::min<uint64_t>(waiting, info.tcpi_bytes_received);
  bytes.read = info.tcpi_bytes_received - bytes.unread;
  bytes.sent = info.tcpi_bytes_acked;
  return true;
}

bool FloodGuard::MustGo(int fd, Connection& connection, const FruitlessWork::Bytes& bytes,
                        absl::Duration now, absl::Duration share) {
  FindPayer(connection, now);
  Widen(fd, connection, now);
  absl::Duration work = connection.work.Of(bytes, now, share);
  // After a large read, streams go on to start for a while.
  const uint64_t every = connection.work.pending() >= kFruitless ? kFruitless : kCountEvery;
  if (bytes.read >= connection.counted + every || connection.busy ||
      connection.held > absl::ZeroDuration()) {
    connection.counted = bytes.read;
    work += CountStreams(connection, now);
  }
  Charge(connection, work, now);
  const absl::Duration owed = DebtOf(connection.payer).At(now);
  const absl::Duration free = owed > kMuchDebt ? kFreeOfMany : kFree;
  return connection.work.HoldsTooMuch() || (owed > kMostDebt && connection.debt.At(now) > free);
}

absl::Duration FloodGuard::CountStreams(Connection& connection, absl::Duration now) {
  const uint64_t ended = connection.use->calls_ended;
  if (connection.transport == 0) {
    connection.busy = now < learn_;  // Then the next look asks.
    if (connection.busy) return absl::ZeroDuration();
    learn_ = now + kLearnEvery;
    transports_.ForEachNew([this](const std::string& peer, int64_t number) {
      const auto found = by_peer_.find(peer);
      if (found != by_peer_.end()) connections_.at(found->second).transport = number;
    });
  }
  if (connection.transport == 0) return absl::ZeroDuration();
  const auto counts = CountsOf(connection.transport);
  if (counts) {
    const uint64_t begun = connection.use->calls_begun;
    const bool more = counts->started != std::exchange(connection.started, counts->started);
    connection.busy = more && counts->started > begun;
    return connection.work.Of(*counts, {.begun = begun, .ended = ended});
  }
  // An earlier connection from the same peer had this number, or gRPC has closed this one.
  connection.transport = 0;
  connection.busy = false;
  return connection.work.OfItsEnd();
}

void FloodGuard::FindPayer(Connection& connection, absl::Duration now) {
  if (connection.known) return;
  std::string caller = users_.Of(connection.peer);
  if (caller.empty()) return;
  connection.known = true;
  // What the connection owes goes with it.
  const absl::Duration owed = connection.debt.At(now) - connection.held;
  Debt& source = DebtOf(connection.payer);
  source.Hold(-connection.held);
  source.Add(-owed, now);
  connection.payer = std::move(caller);
  Debt& debt = DebtOf(connection.payer);
  debt.Hold(connection.held);
  debt.Add(owed, now);
}

void FloodGuard::Widen(int fd, Connection& connection, absl::Duration now) {
  if (!connection.known || connection.wide || DebtOf(connection.payer).At(now) > kMostDebt) return;
  connection.wide = true;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kCallerBuffer, sizeof(kCallerBuffer));
  // Kernels before 6.11 leave the window as small as the newcomer's buffer was.
  ::setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kCallerBuffer, sizeof(kCallerBuffer));
}

Debt& FloodGuard::DebtOf(const std::string& payer) {
  return debts_.try_emplace(payer, kForgiven).first->second;
}

void FloodGuard::Charge(Connection& connection, absl::Duration work, absl::Duration now) {
  const absl::Duration held = connection.work.OfWaitingStreams();
  for (Debt* debt : {&connection.debt, &DebtOf(connection.payer)}) {
    debt->Hold(held - connection.held);
    debt->Add(work, now);
  }
  connection.held = held;
}

void FloodGuard::ChargeHandshake(Connection& connection, absl::Duration now) {
  // A call may have come and gone between two looks, so that nobody knows the caller.
  if (connection.use->calls_begun > 0 || std::exchange(connection.paid, true)) return;
  Charge(connection, kHandshake, now);
}

void FloodGuard::End(Connection& connection, absl::Duration now) {
  ChargeHandshake(connection, now);
  Charge(connection, connection.work.OfItsEnd(), now);
}

}  // namespace trainyard::controller
