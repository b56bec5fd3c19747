// Adapter of Gloo, which throws: the only file that includes it.

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/reduce.h"

namespace trainyard {
namespace {

using Milliseconds = std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// Up to this an operation is bound by latency, and one pass beats two.
constexpr size_t kOnePassBytes = 8 << 10;
// What leaving a group waits for its peers: long enough for one that lacks processor time.
constexpr absl::Duration kFarewell = absl::Seconds(10);

// Carries a rendezvous error through Gloo.
struct RendezvousError : std::exception {
  explicit RendezvousError(absl::Status status) : status(std::move(status)) {}
  const char* what() const noexcept override { return "rendezvous failed"; }
  absl::Status status;
};

class Store final : public ::gloo::rendezvous::Store {
 public:
  Store(Rendezvous& rendezvous, const GlooOptions& options)
      : rendezvous_(rendezvous),
        prefix_(absl::StrCat(options.name, "/")),
        deadline_(SteadyClock::now() + absl::ToChronoMilliseconds(options.connect_timeout)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const absl::Status status =
        rendezvous_.Set(prefix_ + key, std::string(data.begin(), data.end()));
    if (!status.ok()) throw RendezvousError(status);
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    return values_[key];
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      if (values_.contains(key)) continue;
      const auto left = absl::FromChrono(deadline_ - SteadyClock::now());
      const absl::StatusOr<std::string> value = rendezvous_.Get(prefix_ + key, left);
      if (!value.ok()) throw RendezvousError(value.status());
      values_[key].assign(value->begin(), value->end());
    }
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds&) override { wait(keys); }

 private:
  Rendezvous& rendezvous_;
  const std::string prefix_;
  const SteadyClock::time_point deadline_;
  std::map<std::string, std::vector<char>> values_;
};

struct Slice {
  size_t begin, bytes;
};

class GlooCollective final : public Collective {
 public:
  GlooCollective(std::shared_ptr<::gloo::rendezvous::Context> context, const GlooOptions& options)
      : context_(std::move(context)), options_(options) {}

  // A rank that closes its connections while a peer still reads the last operation's bytes would
  // take them away from it. So ranks say goodbye; who hears it has read everything before.
  ~GlooCollective() override {
    try {
      if (!aborted()) ExchangeAll(kFarewell);
    } catch (const std::exception&) {
      // The peer is gone first: nothing is left to lose.
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void AllReduceSum(Tensor data) override {
    Guarded("all_reduce_sum", [&] { Reduce(data, SumInRankOrder); });
  }
  void AllReduceMax(Tensor data) override {
    Guarded("all_reduce_max", [&] { Reduce(data, MaxInRankOrder); });
  }

  void Broadcast(Tensor data, int root) override {
    CHECK(root >= 0 && root < size()) << "root " << root << " of " << size();
    Guarded("broadcast", [&] {
      const Slice whole{0, data.bytes()};
      if (rank() == root) {
        Transfers transfers(*this, options_.timeout);
        for (int peer : peers()) transfers.Send(data.data, whole, peer);
        transfers.Wait();
      } else {
        Transfers transfers(*this, options_.timeout);
        transfers.Receive(data.data, whole, root);
        transfers.Wait();
      }
    });
  }

  void Barrier() override {
    Guarded("barrier", [&] { ExchangeAll(options_.timeout); });
  }

  void Abort() override {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      for (::gloo::transport::UnboundBuffer* buffer : waiting_) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // Closed already.
    }
  }

 private:
  using Combine = void (*)(std::span<const void* const>, DType, int64_t, void*);

  // The messages of one pass. All are posted before any is waited for; a message in flight keeps
  // its memory until Wait returns or throws.
  class Transfers {
   public:
    Transfers(GlooCollective& group, absl::Duration timeout)
        : group_(group),
          deadline_(SteadyClock::now() + absl::ToChronoMilliseconds(timeout)),
          slot_(group.next_slot_++) {}
    ~Transfers() {
      const std::lock_guard lock(group_.mutex_);
      for (const Posted& posted : posted_) group_.waiting_.erase(posted.buffer.get());
    }

    void Send(void* data, Slice slice, int peer) {
      if (slice.bytes > 0) Post(data, slice, /*receives=*/false)->send(peer, slot_);
    }
    void Receive(void* data, Slice slice, int peer) {
      if (slice.bytes > 0) Post(data, slice, /*receives=*/true)->recv(peer, slot_);
    }
    void Wait() {
      for (const Posted& posted : posted_) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline_ - SteadyClock::now());
        // Gloo takes a negative time for "the default".
        const Milliseconds timeout = std::max(left, Milliseconds(0));
        const bool done =
            posted.receives ? posted.buffer->waitRecv(timeout) : posted.buffer->waitSend(timeout);
        if (!done) throw DeviceError(DeviceError::Kind::kPeerLost, "aborted");
      }
    }

   private:
    struct Posted {
      std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
      bool receives;
    };
    ::gloo::transport::UnboundBuffer* Post(void* data, Slice slice, bool receives) {
      posted_.push_back({group_.context_->createUnboundBuffer(
                             static_cast<std::byte*>(data) + slice.begin, slice.bytes),
                         receives});
      const std::lock_guard lock(group_.mutex_);
      if (group_.aborted_) throw DeviceError(DeviceError::Kind::kPeerLost, "aborted");
      group_.waiting_.insert(posted_.back().buffer.get());
      return posted_.back().buffer.get();
    }

    GlooCollective& group_;
    const SteadyClock::time_point deadline_;
    const uint64_t slot_;
    std::vector<Posted> posted_;
  };

  // Every exception of Gloo means that this rank cannot go on.
  template <typename F>
  void Guarded(const char* operation, F&& f) {
    std::string why = "aborted";
    try {
      if (!aborted()) return f();
    } catch (const std::exception& error) {
      why = error.what();
    }
    Abort();
    throw DeviceError(DeviceError::Kind::kPeerLost,
                      absl::StrCat(operation, " on rank ", rank(), " of ", size(), ": ", why));
  }

  bool aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }

  // From the next rank on, so that not all send to rank 0 first.
  std::vector<int> peers() const {
    std::vector<int> peers;
    for (int i = 1; i < size(); ++i) peers.push_back((rank() + i) % size());
    return peers;
  }

  Slice SliceOf(const Tensor& data, int peer) const {
    const int64_t begin = data.elements() * peer / size();
    const int64_t end = data.elements() * (peer + 1) / size();
    return {size_t(begin) * SizeOf(data.dtype), size_t(end - begin) * SizeOf(data.dtype)};
  }

  // `part` bytes for every rank; grows to the largest operation and stays.
  std::byte* Scratch(size_t part) {
    if (scratch_.size() < part * size_t(size())) scratch_.resize(part * size_t(size()));
    return scratch_.data();
  }

  void Reduce(Tensor data, Combine combine) {
    const Slice mine = SliceOf(data, rank());
    if (data.bytes() <= kOnePassBytes) {
      Combined(data, {0, data.bytes()}, combine);
    } else {
      Combined(data, mine, combine);
      ShareSlices(data);
    }
  }

  // Leaves in `slice` of data what all ranks' slices combine to. With the whole tensor as the slice
  // every rank gets all of it; otherwise each gets its own, and sends the others theirs.
  void Combined(Tensor data, Slice slice, Combine combine) {
    const bool whole = slice.bytes == data.bytes();
    std::byte* scratch = Scratch(slice.bytes);
    std::vector<const void*> parts(size_t(size()),
                                   static_cast<std::byte*>(data.data) + slice.begin);
    Transfers transfers(*this, options_.timeout);
    for (int peer : peers()) {
      std::byte* part = scratch + size_t(peer) * slice.bytes;
      parts[size_t(peer)] = part;
      transfers.Receive(part, {0, slice.bytes}, peer);
      transfers.Send(data.data, whole ? slice : SliceOf(data, peer), peer);
    }
    transfers.Wait();
    if (slice.bytes == 0) return;
    combine(parts, data.dtype, int64_t(slice.bytes / SizeOf(data.dtype)),
            static_cast<std::byte*>(data.data) + slice.begin);
  }

  void ShareSlices(Tensor data) {
    Transfers transfers(*this, options_.timeout);
    for (int peer : peers()) {
      transfers.Receive(data.data, SliceOf(data, peer), peer);
      transfers.Send(data.data, SliceOf(data, rank()), peer);
    }
    transfers.Wait();
  }

  // A byte to and from everyone.
  void ExchangeAll(absl::Duration timeout) {
    std::byte* scratch = Scratch(1);
    Transfers transfers(*this, timeout);
    for (int peer : peers()) {
      transfers.Receive(scratch, {size_t(peer), 1}, peer);
      transfers.Send(scratch, {size_t(rank()), 1}, peer);
    }
    transfers.Wait();
  }

  const std::shared_ptr<::gloo::rendezvous::Context> context_;
  const GlooOptions options_;
  uint64_t next_slot_ = 0;
  std::vector<std::byte> scratch_;

  std::mutex mutex_;  // Guards the next two.
  bool aborted_ = false;
  std::set<::gloo::transport::UnboundBuffer*> waiting_;
};

// Whether a socket can listen there. Gloo itself crashes on a name that does not resolve.
bool IsLocalAddress(const std::string& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return false;
  bool local = false;
  for (const addrinfo* info = found; info != nullptr && !local; info = info->ai_next) {
    const int fd = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    local = fd >= 0 && ::bind(fd, info->ai_addr, info->ai_addrlen) == 0;
    if (fd >= 0) ::close(fd);
  }
  ::freeaddrinfo(found);
  return local;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> CreateGloo(const GlooOptions& options,
                                                       Rendezvous& rendezvous) {
  CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size)
      << "rank " << options.rank << " of " << options.size;
  // Gloo writes to connections whose peer may be gone; that must be an error, not this process's
  // end.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    ::gloo::transport::tcp::attr attr;
    if (::if_nametoindex(options.interface.c_str()) != 0) {
      attr.iface = options.interface;
    } else if (!IsLocalAddress(options.interface)) {
      return absl::InvalidArgumentError(
          absl::StrCat("interface '", options.interface,
                       "' is neither a network device nor an address of this machine"));
    } else {
      attr.hostname = options.interface;
    }
    std::shared_ptr<::gloo::transport::Device> device = ::gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<::gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(absl::ToChronoMilliseconds(options.connect_timeout));
    Store store(rendezvous, options);
    context->connectFullMesh(store, device);
    return std::make_unique<GlooCollective>(std::move(context), options);
  } catch (const RendezvousError& error) {
    return error.status;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rank ", options.rank, " of ", options.size,
                                               " on interface ", options.interface, ": ",
                                               error.what()));
  }
}

}  // namespace trainyard
