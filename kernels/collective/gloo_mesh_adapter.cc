// Adapter of Gloo's connections and messages, which throw.

#include "kernels/collective/gloo_mesh_adapter.h"

#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"

namespace trainyard {
namespace {

using Milliseconds = std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr absl::Duration kWatchInterval = absl::Milliseconds(100);
// No message has this tag: channel 0 is that of the farewell, which makes only passes.
constexpr uint64_t kSentinelTag = uint64_t{1} << 47;

[[noreturn]] void Fail(const std::string& what, const std::set<int>& peers,
                       const std::string& why) {
  throw GlooFailure(absl::StrCat(what, " world rank ", absl::StrJoin(peers, ", "), " (", why, ")"));
}

}  // namespace

GlooMesh::GlooMesh(std::shared_ptr<::gloo::rendezvous::Context> context, absl::Duration timeout)
    : context_(std::move(context)),
      timeout_(timeout),
      sentinels_(PostSentinels()),
      watch_([this] { Watch(); }) {}

GlooMesh::~GlooMesh() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  end_.NotifyAll();
  watch_.join();
}

void GlooMesh::Add(Buffer* buffer, int peer) {
  const MutexLock lock(mutex_);
  if (aborted_) throw GlooFailure(why_);
  peers_[buffer] = peer;
}

void GlooMesh::Remove(Buffer* buffer) {
  const MutexLock lock(mutex_);
  peers_.erase(buffer);
}

void GlooMesh::Abort(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(aborted_, true)) return;
    why_ = "aborted: " + why;
    for (const auto& [buffer, peer] : peers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  Close();
}

bool GlooMesh::aborted() {
  const MutexLock lock(mutex_);
  return aborted_;
}

void GlooMesh::ThrowIfAborted() {
  const MutexLock lock(mutex_);
  if (aborted_) throw GlooFailure(why_);
}

std::vector<std::unique_ptr<GlooMesh::Buffer>> GlooMesh::PostSentinels() {
  std::vector<std::unique_ptr<Buffer>> sentinels(size_t(context_->size));
  for (int peer = 0; peer < context_->size; ++peer) {
    if (peer == context_->rank) continue;
    sentinels[size_t(peer)] = NewBuffer(nullptr, 0);
    sentinels[size_t(peer)]->recv(peer, kSentinelTag);
  }
  return sentinels;
}

std::string GlooMesh::WhyBroken(int peer) {
  const MutexLock lock(sentinels_mutex_);
  Buffer& sentinel = *sentinels_[size_t(peer)];
  try {
    // An aborted wait returns at once, or throws the failure of its connection.
    sentinel.abortWaitRecv();
    sentinel.waitRecv(Milliseconds(0));
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// If a connection breaks while a message has partly arrived or left, Gloo forgets the message, and
// nothing ends the wait for it before its timeout. So the watcher ends such waits.
void GlooMesh::Watch() {
  MutexLock lock(mutex_);
  for (;;) {
    const absl::Duration next = RealClock().Monotonic() + kWatchInterval;
    while (!ends_ && end_.WaitUntil(mutex_, next)) continue;
    if (ends_) return;
    std::erase_if(peers_, [this](const auto& entry) {
      const auto& [buffer, peer] = entry;
      if (WhyBroken(peer).empty()) return false;
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
      return true;
    });
  }
}

void GlooMesh::Close() {
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // The connections are closed already.
  }
}

struct GlooTransfers::Posted {
  std::unique_ptr<GlooMesh::Buffer> buffer;
  int peer;
  bool receives;
  bool through = false;

  // Returns false if the wait was aborted. The message may nevertheless arrive afterwards.
  bool Wait(Milliseconds timeout) {
    return through = receives ? buffer->waitRecv(timeout) : buffer->waitSend(timeout);
  }
  bool IsThrough() {
    try {
      return through || Wait(Milliseconds(0)) || Wait(Milliseconds(0));
    } catch (const std::exception&) {
      return false;
    }
  }
};

GlooTransfers::GlooTransfers(GlooMesh& mesh) : mesh_(mesh) {}

GlooTransfers::~GlooTransfers() {
  for (const Posted& posted : posted_) mesh_.Remove(posted.buffer.get());
}

void GlooTransfers::Send(const void* data, Slice slice, int peer, uint64_t tag) {
  // Gloo has the same type of buffer for both directions.
  Post(const_cast<void*>(data), slice, peer, tag, /*receives=*/false);
}

void GlooTransfers::Receive(void* data, Slice slice, int peer, uint64_t tag) {
  Post(data, slice, peer, tag, /*receives=*/true);
}

void GlooTransfers::Wait(absl::Duration timeout) {
  const auto deadline = SteadyClock::now() + absl::ToChronoMilliseconds(timeout);
  for (Posted& posted : posted_) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - SteadyClock::now());
    std::string why;
    try {
      // Gloo takes a negative time as "the default".
      if (posted.Wait(std::max(left, Milliseconds(0)))) continue;
    } catch (const std::exception& error) {
      why = error.what();
    }
    mesh_.ThrowIfAborted();
    std::map<int, std::string> broken = Broken();  // First, because IsThrough may close all.
    if (why.empty() && posted.IsThrough()) continue;
    if (!why.empty()) broken[posted.peer] = why;  // Its sentinel may not know yet.
    const bool late = SteadyClock::now() >= deadline;
    Fail(late ? "no word within " + absl::FormatDuration(timeout) + " from" : "lost",
         Missing(broken), broken.at(posted.peer));
  }
}

void GlooTransfers::Post(void* data, Slice slice, int peer, uint64_t tag, bool receives) {
  if (slice.bytes == 0) return;
  posted_.push_back(
      {mesh_.NewBuffer(static_cast<std::byte*>(data) + slice.begin, slice.bytes), peer, receives});
  GlooMesh::Buffer& buffer = *posted_.back().buffer;
  mesh_.Add(&buffer, peer);
  try {
    receives ? buffer.recv(peer, tag) : buffer.send(peer, tag);
  } catch (const std::exception& error) {
    mesh_.ThrowIfAborted();
    Fail("lost", {peer}, error.what());
  }
}

// Returns the failures of the broken connections, by peer.
std::map<int, std::string> GlooTransfers::Broken() const {
  std::map<int, std::string> broken;
  for (const Posted& posted : posted_) {
    std::string why = mesh_.WhyBroken(posted.peer);
    if (!why.empty()) broken[posted.peer] = std::move(why);
  }
  return broken;
}

// The peers whose connections failed before their messages were complete.
std::set<int> GlooTransfers::Missing(const std::map<int, std::string>& broken) {
  std::set<int> missing;
  for (Posted& posted : posted_) {
    if (broken.contains(posted.peer) && !posted.IsThrough()) missing.insert(posted.peer);
  }
  return missing;
}

}  // namespace trainyard

// Sanitizers have an epoll_wait of their own.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace {

// Handling an event takes at least one call into the kernel, and so longer than this.
constexpr int64_t kPassingByNanoseconds = 250;
constexpr int kMostPasses = 4;

struct LastEvent {
  uint64_t connection = 0;
  int64_t returned_at = 0;
  int passes = 0;  // How often in a row the event was passed by.
};

int64_t Nanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// Keeps the thread of Gloo's device from spinning: libgloo calls this function in place of libc's.
// The thread passes by the event of a connection whose mutex a sending thread holds
// (gloo::transport::tcp::Pair::handleEvents), and the kernel reports the same event again at once.
// When data arrive for a connection while a thread sends, Gloo's thread often takes the processor
// from that very sender, and would spin until its time slice of some milliseconds is over. Here it
// yields, and the sender comes to release the mutex. docs/numbers.md says what this saves. Gloo's
// classes cannot be derived from for this, because Debian's package lacks one of their headers.
extern "C" int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  thread_local LastEvent last;
  const bool passed_by = Nanoseconds() - last.returned_at < kPassingByNanoseconds;
  const int count = ::epoll_pwait(epoll, events, most, timeout, nullptr);
  if (count == 1 && passed_by && events[0].data.u64 == last.connection) {
    if (++last.passes >= kMostPasses) ::sched_yield();
  } else {
    last.passes = 0;
  }
  if (count > 0) last.connection = events[0].data.u64;
  last.returned_at = Nanoseconds();
  return count;
}

#endif
