// Adapter of Gloo: the rendezvous, and the collectives as passes of messages.

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <net/if.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/file_descriptor.h"
#include "common/rng.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/gloo_mesh_adapter.h"
#include "kernels/collective/reduce.h"

namespace trainyard {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Up to this size latency bounds an operation, and one pass is faster than two.
constexpr size_t kOnePassBytes = 8 << 10;
// How long leaving a group waits for the peers. A peer may lack processor time.
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
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  Rendezvous& rendezvous_;
  const std::string prefix_;
  const SteadyClock::time_point deadline_;
  std::map<std::string, std::vector<char>> values_;
};

// Returns 256 random bits that nobody can guess.
std::string RandomHex() {
  std::string bytes(32, '\0');
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), int(bytes.size())) == 1);
  return absl::BytesToHexString(bytes);
}

// The answer of rank `from` to rank `to`: HMAC-SHA256 (RFC 2104).
std::string ProofOf(const std::string& secret, int from, int to, const std::string& question) {
  const std::string text = absl::StrCat(from, " ", to, " ", question);
  std::string proof(32, '\0');
  CHECK(HMAC(EVP_sha256(), secret.data(), int(secret.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(proof.data()), nullptr) != nullptr);
  return absl::BytesToHexString(proof);
}

class GlooCollective final : public Collective {
 public:
  // `channels` has, by rank of the group, a number that no other group of the two ranks has.
  GlooCollective(GlooMesh& mesh, const std::string& name, const std::vector<int>& members, int rank,
                 std::vector<uint64_t> channels)
      : Collective(name, members, rank), mesh_(mesh), channels_(std::move(channels)) {
    for (int i = 1; i < size(); ++i) peers_.push_back((rank + i) % size());
  }
  ~GlooCollective() override {
    if (!sends_.empty() || !receives_.empty()) {
      mesh_.Abort(absl::StrCat("group ", name(), " ended before its messages were waited for"));
    }
  }

  void Abort() override { mesh_.Abort(absl::StrCat("group ", name(), " was aborted")); }

  // Returns whether all members give the same bytes. Throws GlooFailure.
  bool Agree(const std::string& bytes, absl::Duration timeout) {
    std::byte* scratch = Scratch(bytes.size());
    Pass pass(*this);
    for (int peer : peers_) {
      pass.Receive(scratch, {size_t(peer) * bytes.size(), bytes.size()}, peer);
      pass.Send(bytes.data(), {0, bytes.size()}, peer);
    }
    pass.Wait(timeout);
    return std::all_of(peers_.begin(), peers_.end(), [&](int peer) {
      return std::memcmp(scratch + size_t(peer) * bytes.size(), bytes.data(), bytes.size()) == 0;
    });
  }

  // Proves to every peer that this rank knows the world's secret. Throws GlooFailure unless every
  // peer proves the same. Each side hashes the secret together with a number that the other side
  // has just made.
  void Prove(const std::string& secret, absl::Duration timeout) {
    const std::string question = RandomHex();
    const size_t bytes = question.size();
    std::vector<std::string> questions(size_t(size()), std::string(bytes, 0));
    std::vector<std::string> proofs = questions, answers = questions;
    const auto exchange = [&](const auto& mine, std::vector<std::string>& theirs) {
      Pass pass(*this);
      for (int peer : peers_) {
        pass.Receive(theirs[size_t(peer)].data(), {0, bytes}, peer);
        pass.Send(mine(peer).data(), {0, bytes}, peer);
      }
      pass.Wait(timeout);
    };
    exchange([&](int) -> const std::string& { return question; }, questions);
    for (int peer : peers_) {
      proofs[size_t(peer)] = ProofOf(secret, rank(), peer, questions[size_t(peer)]);
    }
    exchange([&](int peer) -> const std::string& { return proofs[size_t(peer)]; }, answers);
    for (int peer : peers_) {
      if (answers[size_t(peer)] == ProofOf(secret, peer, rank(), question)) continue;
      throw GlooFailure(
          absl::StrCat("what is connected as world rank ", peer, " is no rank of this attempt"));
    }
  }

  // Sends a byte to every peer, and receives one.
  void ExchangeAll(absl::Duration timeout) {
    std::byte* scratch = Scratch(1);
    Pass pass(*this);
    for (int peer : peers_) {
      pass.Receive(scratch, {size_t(peer), 1}, peer);
      pass.Send(scratch, {size_t(rank()), 1}, peer);
    }
    pass.Wait(timeout);
  }

 private:
  using Combine = void (*)(std::span<const void* const>, DType, int64_t, void*);

  // The messages of one pass of a collective. All ranks number passes in the same way.
  class Pass {
   public:
    explicit Pass(GlooCollective& group)
        : group_(group), transfers_(group.mesh_), number_(group.passes_++) {}
    void Send(const void* data, Slice slice, int peer) {
      transfers_.Send(data, slice, group_.world_rank(peer),
                      group_.Tag(peer, kPass, number_, slice.bytes));
    }
    void Receive(void* data, Slice slice, int peer) {
      transfers_.Receive(data, slice, group_.world_rank(peer),
                         group_.Tag(peer, kPass, number_, slice.bytes));
    }
    void Wait() { Wait(group_.mesh_.timeout()); }
    void Wait(absl::Duration timeout) { transfers_.Wait(timeout); }

   private:
    GlooCollective& group_;
    GlooTransfers transfers_;
    const uint64_t number_;
  };

  enum Use : uint64_t { kPass = 0, kMessage = 1 };
  // 16 bits for the channel, 1 for the use, 31 for the number and 16 for the size. The size is part
  // of the tag because Gloo does not notice a message that is shorter than its receiver expects.
  // With another tag such a message never arrives.
  uint64_t Tag(int peer, Use use, uint64_t number, size_t bytes) const {
    return channels_[size_t(peer)] << 48 | use << 47 | (number & 0x7fffffff) << 16 |
           Mix(bytes) >> 48;
  }

  void DoAllReduceSum(Tensor data) override {
    Guarded([&] { Reduce(data, SumInRankOrder); });
  }
  void DoAllReduceMax(Tensor data) override {
    Guarded([&] { Reduce(data, MaxInRankOrder); });
  }

  void DoBroadcast(Tensor data, int root) override {
    Guarded([&] {
      const Slice whole{0, data.bytes()};
      Pass pass(*this);
      if (rank() == root) {
        for (int peer : peers_) pass.Send(data.data, whole, peer);
      } else {
        pass.Receive(data.data, whole, root);
      }
      pass.Wait();
    });
  }

  void DoBarrier() override {
    Guarded([&] { ExchangeAll(mesh_.timeout()); });
  }

  void DoAllGather(ConstTensor mine, Tensor all) override {
    Guarded([&] {
      const size_t bytes = mine.bytes();
      Pass pass(*this);
      for (int peer : peers_) {
        pass.Receive(all.data, {size_t(peer) * bytes, bytes}, peer);
        pass.Send(mine.data, {0, bytes}, peer);
      }
      Copy(static_cast<std::byte*>(all.data) + size_t(rank()) * bytes, mine.data, bytes);
      pass.Wait();
    });
  }

  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Guarded([&] {
      const auto slice = [&](int peer) { return Slice{size_t(peer) * mine.bytes(), mine.bytes()}; };
      CombineSlices(all, slice, mine.data, SumInRankOrder);
    });
  }

  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    Guarded([&] {
      const auto block = [](const ConstTensor& tensor, std::span<const int64_t> rows, int peer) {
        if (tensor.bytes() == 0) return Slice{0, 0};
        const size_t row = tensor.bytes() / size_t(tensor.shape[0]);
        const int64_t before = std::accumulate(rows.begin(), rows.begin() + peer, int64_t{0});
        return Slice{size_t(before) * row, size_t(rows[size_t(peer)]) * row};
      };
      Pass pass(*this);
      for (int peer : peers_) {
        pass.Receive(receive.data, block(receive, receive_rows, peer), peer);
        pass.Send(send.data, block(send, send_rows, peer), peer);
      }
      const Slice from = block(send, send_rows, rank()), to = block(receive, receive_rows, rank());
      Copy(static_cast<std::byte*>(receive.data) + to.begin,
           static_cast<const std::byte*>(send.data) + from.begin, to.bytes);
      pass.Wait();
    });
  }

  using Messages = std::map<std::pair<int, int64_t>, GlooTransfers>;  // By peer and number.

  void DoPostSend(ConstTensor data, Message to) override {
    Guarded([&] {
      GlooTransfers& transfers = sends_.try_emplace({to.peer, to.n}, mesh_).first->second;
      transfers.Send(data.data, {0, data.bytes()}, world_rank(to.peer),
                     Tag(to.peer, kMessage, uint64_t(to.n), data.bytes()));
    });
  }
  // A message is sent when its receiver has posted the receive.
  void DoPostReceive(Tensor data, Message from) override {
    Guarded([&] {
      GlooTransfers& transfers = receives_.try_emplace({from.peer, from.n}, mesh_).first->second;
      transfers.Receive(data.data, {0, data.bytes()}, world_rank(from.peer),
                        Tag(from.peer, kMessage, uint64_t(from.n), data.bytes()));
    });
  }
  void DoWaitSend(Message to) override { WaitFor(sends_, to); }
  void DoReceive(Tensor, Message from) override { WaitFor(receives_, from); }
  void WaitFor(Messages& posted, Message message) {
    Guarded([&] {
      auto found = posted.extract({message.peer, message.n});
      CHECK(!found.empty()) << OperationUnderWay() << ": waited for already";
      found.mapped().Wait(mesh_.timeout());
    });
  }

  // Every exception of Gloo means that this rank cannot continue.
  template <typename F>
  void Guarded(F&& f) {
    std::string what;
    try {
      mesh_.ThrowIfAborted();
      return f();
    } catch (const std::exception& error) {
      what = absl::StrCat(OperationUnderWay(), ": ", error.what());
    }
    mesh_.Abort(what);
    throw DeviceError(DeviceError::Kind::kPeerLost, what);
  }

  Slice SliceOf(const Tensor& data, int peer) const {
    const int64_t begin = data.elements() * peer / size();
    const int64_t end = data.elements() * (peer + 1) / size();
    return {size_t(begin) * SizeOf(data.dtype), size_t(end - begin) * SizeOf(data.dtype)};
  }

  // Memory with `part` bytes for every rank. Grows to the largest operation and is kept.
  std::byte* Scratch(size_t part) {
    if (scratch_.size() < part * size_t(size())) scratch_.resize(part * size_t(size()));
    return scratch_.data();
  }

  static void Copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  void Reduce(Tensor data, Combine combine) {
    if (data.bytes() <= kOnePassBytes) {
      const auto whole = [&](int) { return Slice{0, data.bytes()}; };
      CombineSlices(data, whole, data.data, combine);
    } else {
      const auto slice = [&](int peer) { return SliceOf(data, peer); };
      CombineSlices(data, slice, static_cast<std::byte*>(data.data) + slice(rank()).begin, combine);
      ShareSlices(data);
    }
  }

  // out = the combination of slice_of(rank()) of all ranks. Sends the other ranks their slices of
  // this rank's data.
  template <typename SliceFunction>
  void CombineSlices(ConstTensor data, SliceFunction slice_of, void* out, Combine combine) {
    const Slice mine = slice_of(rank());
    std::byte* scratch = Scratch(mine.bytes);
    std::vector<const void*> parts(size_t(size()),
                                   static_cast<const std::byte*>(data.data) + mine.begin);
    Pass pass(*this);
    for (int peer : peers_) {
      std::byte* part = scratch + size_t(peer) * mine.bytes;
      parts[size_t(peer)] = part;
      pass.Receive(part, {0, mine.bytes}, peer);
      pass.Send(data.data, slice_of(peer), peer);
    }
    pass.Wait();
    if (mine.bytes == 0) return;
    combine(parts, data.dtype, int64_t(mine.bytes / SizeOf(data.dtype)), out);
  }

  void ShareSlices(Tensor data) {
    Pass pass(*this);
    for (int peer : peers_) {
      pass.Receive(data.data, SliceOf(data, peer), peer);
      pass.Send(data.data, SliceOf(data, rank()), peer);
    }
    pass.Wait();
  }

  GlooMesh& mesh_;
  const std::vector<uint64_t> channels_;
  std::vector<int> peers_;  // Starts with the next rank, so that not all send to rank 0 first.
  uint64_t passes_ = 0;
  Messages sends_, receives_;  // Posted, and not yet waited for.
  std::vector<std::byte> scratch_;
};

class GlooWorld final : public CollectiveWorld {
 public:
  GlooWorld(std::shared_ptr<::gloo::rendezvous::Context> context, const GlooOptions& options)
      : options_(options),
        mesh_(std::move(context), options.timeout),
        made_(size_t(options.size)),
        farewell_(mesh_, "farewell", Ranks(options.size), options.rank, made_) {}

  // If a rank closed its connections while a peer still reads the bytes of the last operation, the
  // peer would lose them. So ranks say goodbye: a rank that receives the goodbye has read
  // everything before.
  ~GlooWorld() override {
    try {
      if (!mesh_.aborted()) farewell_.ExchangeAll(kFarewell);
    } catch (const std::exception&) {
      // The peer left first, so there is nothing to lose.
    }
    mesh_.Close();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void Abort() override { mesh_.Abort("the world was aborted"); }

  // Must come before all other messages.
  absl::Status Prove(const std::string& secret) {
    try {
      farewell_.Prove(secret, options_.connect_timeout);
      return absl::OkStatus();
    } catch (const GlooFailure& error) {
      mesh_.Abort(error.what());
      return absl::UnavailableError(error.what());
    }
  }

  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    const int rank_in_group = RankIn(members);
    std::vector<uint64_t> channels;
    for (int member : members) {
      channels.push_back(++made_[size_t(member)]);
      CHECK(channels.back() < 1 << 16) << "too many groups with rank " << member;
    }
    auto group =
        std::make_unique<GlooCollective>(mesh_, name, members, rank_in_group, std::move(channels));
    const std::string description =
        absl::StrCat("group ", name, " {", absl::StrJoin(members, ","), "}");
    absl::Status status;
    try {
      if (group->Agree(Sha256Of(description), options_.connect_timeout)) return group;
      status = absl::FailedPreconditionError(absl::StrCat(
          description, ": a member joins another group where world rank ", rank(), " joins this"));
    } catch (const std::exception& error) {
      status = absl::UnavailableError(absl::StrCat(description, ": ", error.what()));
    }
    mesh_.Abort(std::string(status.message()));
    return status;
  }

 private:
  static std::vector<int> Ranks(int size) {
    std::vector<int> ranks(size_t(size), 0);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const GlooOptions options_;
  GlooMesh mesh_;
  std::vector<uint64_t> made_;  // Number of groups with each rank so far. Number 0 is farewell_.
  GlooCollective farewell_;
};

// Whether a socket can listen at this address. Gloo itself crashes on a name that does not resolve.
bool IsLocalAddress(const std::string& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return false;
  bool local = false;
  for (const addrinfo* info = found; info != nullptr && !local; info = info->ai_next) {
    const FileDescriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    local = socket.valid() && ::bind(socket.get(), info->ai_addr, info->ai_addrlen) == 0;
  }
  ::freeaddrinfo(found);
  return local;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveWorld>> CreateGlooWorld(const GlooOptions& options,
                                                                 Rendezvous& rendezvous) {
  CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size)
      << "rank " << options.rank << " of " << options.size;
  // Gloo may write to a connection whose peer is gone. That must be an error and not end this
  // process.
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
    // Everybody who reaches the ranks' ports can connect. The secret is sent through the workers.
    const std::string key = "secret";
    if (options.rank == 0) {
      const std::string made = RandomHex();
      store.set(key, {made.begin(), made.end()});
    }
    const std::vector<char> secret = store.get(key);
    auto world = std::make_unique<GlooWorld>(std::move(context), options);
    RETURN_IF_ERROR(world->Prove({secret.begin(), secret.end()}));
    return world;
  } catch (const RendezvousError& error) {
    return error.status;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rank ", options.rank, " of ", options.size,
                                               " on interface ", options.interface, ": ",
                                               error.what()));
  }
}

}  // namespace trainyard
