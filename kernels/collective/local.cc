#include "kernels/collective/local.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/mutex.h"
#include "kernels/collective/reduce.h"

namespace trainyard {
namespace {

// The messages from one rank of a group to another rank.
struct Channel {
  struct Posted {
    ConstTensor data;
    std::vector<std::byte> copy;
    bool waited_for = false;
  };

  // The index in `posted` of the next message to receive.
  size_t position() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return size_t(received - first); }

  Mutex mutex;
  CondVar changed;
  std::deque<Posted> posted ABSL_GUARDED_BY(mutex);  // The first is message `first`.
  // Memory of messages that were waited for.
  std::vector<std::vector<std::byte>> spare ABSL_GUARDED_BY(mutex);
  int64_t first ABSL_GUARDED_BY(mutex) = 0, received ABSL_GUARDED_BY(mutex) = 0;
  bool aborted ABSL_GUARDED_BY(mutex) = false;
};

// The place where the ranks of a group meet for each collective. All arrive, each does its share of
// the work, and all leave. Nothing can stop an operation once all have arrived, so no tensor
// disappears while another rank reads it.
struct Meeting {
  // The operands of one rank.
  struct Share {
    ConstTensor in;
    void* out = nullptr;
    std::span<const int64_t> rows;
  };

  explicit Meeting(size_t size) : shares(size), channels(size * size) {}

  Channel& channel(int from, int to) { return channels[size_t(from) * shares.size() + size_t(to)]; }

  void Abort() {
    {
      const MutexLock lock(mutex);
      aborted = true;
      changed.NotifyAll();
    }
    for (Channel& channel : channels) {
      const MutexLock lock(channel.mutex);
      channel.aborted = true;
      channel.changed.NotifyAll();
    }
  }

  Mutex mutex;
  CondVar changed;
  // By rank, for the current operation. A rank writes its own share under the mutex when it
  // arrives. Between its arrival and its leave it reads the others' shares without the mutex.
  std::vector<Share> shares;
  std::vector<Channel> channels;
  int arrived ABSL_GUARDED_BY(mutex) = 0;
  int working ABSL_GUARDED_BY(mutex) = 0;       // Ranks that have not finished their share.
  uint64_t round ABSL_GUARDED_BY(mutex) = 0;    // Operations in which all have arrived.
  bool aborted ABSL_GUARDED_BY(mutex) = false;  // Permanent.
};

std::byte* At(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* At(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

// The state that all ranks share.
struct LocalWorld::Hub {
  struct Joining {
    std::shared_ptr<Meeting> meeting;
    std::vector<int> missing;  // World ranks.
  };

  explicit Hub(int size) : size(size), made(size_t(size * size)) {}

  absl::StatusOr<std::shared_ptr<Meeting>> Join(int rank, const std::string& name,
                                                const std::vector<int>& members);
  void Abort(int rank);

  const int size;
  std::atomic<int> aborted_by = -1;  // The first rank that called Abort.
  Mutex mutex;
  std::vector<std::weak_ptr<Meeting>> meetings ABSL_GUARDED_BY(mutex);
  std::map<std::string, Joining> joining ABSL_GUARDED_BY(mutex);
  // The groups that rank a has made and rank b belongs to, at index a * size + b.
  std::vector<std::vector<std::string>> made ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::shared_ptr<Meeting>> LocalWorld::Hub::Join(int rank, const std::string& name,
                                                               const std::vector<int>& members) {
  const MutexLock lock(mutex);
  if (aborted_by >= 0) {
    return absl::UnavailableError(
        absl::StrCat("group ", name, ": world rank ", aborted_by.load(), " has aborted"));
  }
  const std::string group = absl::StrCat(name, " {", absl::StrJoin(members, ","), "}");
  for (int member : members) {
    if (member == rank) continue;
    std::vector<std::string>& mine = made[size_t(rank * size + member)];
    const std::vector<std::string>& theirs = made[size_t(member * size + rank)];
    if (theirs.size() > mine.size() && theirs[mine.size()] != group) {
      return absl::FailedPreconditionError(absl::StrCat("world rank ", rank, " joins group ", group,
                                                        " where rank ", member, " joined ",
                                                        theirs[mine.size()]));
    }
    mine.push_back(group);
  }
  Joining& entry = joining[group];
  if (entry.meeting == nullptr) {
    entry = {std::make_shared<Meeting>(members.size()), members};
    std::erase_if(meetings, [](const auto& meeting) { return meeting.expired(); });
    meetings.push_back(entry.meeting);
  }
  const std::shared_ptr<Meeting> meeting = entry.meeting;
  std::erase(entry.missing, rank);
  if (entry.missing.empty()) joining.erase(group);
  return meeting;
}

void LocalWorld::Hub::Abort(int rank) {
  const MutexLock lock(mutex);
  if (aborted_by >= 0) return;
  aborted_by = rank;
  for (const auto& weak : meetings) {
    if (const std::shared_ptr<Meeting> meeting = weak.lock()) meeting->Abort();
  }
}

class LocalWorld::Rank final : public CollectiveWorld {
 public:
  Rank(Hub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.size; }
  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override;
  void Abort() override { hub_.Abort(rank_); }

 private:
  class Member;
  Hub& hub_;
  const int rank_;
};

class LocalWorld::Rank::Member final : public Collective {
 public:
  Member(Hub& hub, std::shared_ptr<Meeting> meeting, const std::string& name,
         const std::vector<int>& members, int rank)
      : Collective(name, members, rank),
        hub_(hub),
        meeting_(std::move(meeting)),
        parts_(members.size()) {}

  ~Member() override {
    bool left_messages = false;
    for (int peer = 0; peer < size(); ++peer) {
      Channel& channel = meeting_->channel(rank(), peer);
      const MutexLock lock(channel.mutex);
      left_messages |= !channel.posted.empty();
    }
    if (left_messages) hub_.Abort(world_rank(rank()));
  }

  void Abort() override { hub_.Abort(world_rank(rank())); }

 private:
  using Combine = void (*)(std::span<const void* const>, DType, int64_t, void*);

  void DoAllReduceSum(Tensor data) override { Reduce(data, SumInRankOrder); }
  void DoAllReduceMax(Tensor data) override { Reduce(data, MaxInRankOrder); }

  void DoBroadcast(Tensor data, int root) override {
    Arrive({data, nullptr, {}});
    const ConstTensor& from = share(root).in;
    CheckSame(from, data);
    Copy(data.data, from.data, data.bytes());
    Leave();
  }

  void DoBarrier() override {
    Arrive({});
    Leave();
  }

  void DoAllGather(ConstTensor mine, Tensor all) override {
    Arrive({mine, nullptr, {}});
    for (int peer = 0; peer < size(); ++peer) {
      const ConstTensor& from = share(peer).in;
      CheckSame(from, mine);
      Copy(At(all.data, size_t(peer) * mine.bytes()), from.data, mine.bytes());
    }
    Leave();
  }

  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Arrive({all, nullptr, {}});
    CombineParts(all, size_t(rank()) * mine.bytes(), mine.elements(), mine.data, SumInRankOrder);
    Leave();
  }

  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    Arrive({send, nullptr, send_rows});
    const size_t row = receive.bytes() == 0 ? 0 : receive.bytes() / size_t(receive.shape[0]);
    std::byte* to = At(receive.data, 0);
    for (int peer = 0; peer < size(); ++peer) {
      const auto& [in, out, rows] = share(peer);
      CHECK(rows[size_t(rank())] == receive_rows[size_t(peer)] && in.dtype == receive.dtype)
          << "rank " << peer << " sends " << rows[size_t(rank())] << " rows of " << in.dtype
          << " to rank " << rank() << ", which expects " << receive_rows[size_t(peer)] << " of "
          << receive.dtype;
      const int64_t before = std::accumulate(rows.begin(), rows.begin() + rank(), int64_t{0});
      const size_t bytes = row * size_t(receive_rows[size_t(peer)]);
      Copy(to, At(in.data, row * size_t(before)), bytes);
      to += bytes;
    }
    Leave();
  }

  void DoPostSend(ConstTensor data, Message to) override;
  void DoWaitSend(Message to) override;
  void DoReceive(Tensor data, Message from) override;

  // Each rank combines its slice of all tensors and writes the result to all tensors.
  void Reduce(Tensor data, Combine combine) {
    Arrive({data, data.data, {}});
    const int64_t begin = data.elements() * rank() / size();
    const int64_t elements = data.elements() * (rank() + 1) / size() - begin;
    const size_t offset = size_t(begin) * SizeOf(data.dtype);
    std::byte* mine = At(data.data, offset);
    CombineParts(data, offset, elements, mine, combine);
    for (const Meeting::Share& share : meeting_->shares) {
      Copy(At(share.out, offset), mine, size_t(elements) * SizeOf(data.dtype));
    }
    Leave();
  }

  // out = the combination of `elements` elements at `offset` of all ranks' tensors. `like` has
  // their form.
  void CombineParts(const ConstTensor& like, size_t offset, int64_t elements, void* out,
                    Combine combine) {
    for (int peer = 0; peer < size(); ++peer) {
      const ConstTensor& tensor = share(peer).in;
      CheckSame(tensor, like);
      parts_[size_t(peer)] = At(tensor.data, offset);
    }
    if (elements > 0) combine(parts_, like.dtype, elements, out);
  }

  void CheckSame(const ConstTensor& a, const ConstTensor& b) const {
    CHECK(a.dtype == b.dtype && a.elements() == b.elements())
        << "ranks disagree: " << a.dtype << a.shape << " and " << b.dtype << b.shape;
  }

  const Meeting::Share& share(int peer) const { return meeting_->shares[size_t(peer)]; }

  // Returns once all ranks have arrived.
  void Arrive(const Meeting::Share& share) {
    Meeting& meeting = *meeting_;
    MutexLock lock(meeting.mutex);
    if (meeting.aborted) Throw();
    meeting.shares[size_t(rank())] = share;
    const uint64_t round = meeting.round;
    if (++meeting.arrived == size()) {
      meeting.arrived = 0;
      meeting.working = size();
      ++meeting.round;
      meeting.changed.NotifyAll();
      return;
    }
    while (meeting.round == round && !meeting.aborted) meeting.changed.Wait(meeting.mutex);
    if (meeting.round == round) Throw();
  }

  // Returns once all ranks have done their share.
  void Leave() {
    Meeting& meeting = *meeting_;
    MutexLock lock(meeting.mutex);
    if (--meeting.working == 0) meeting.changed.NotifyAll();
    // `working` stays zero until this rank, too, has arrived for the next operation.
    while (meeting.working != 0) meeting.changed.Wait(meeting.mutex);
  }

  [[noreturn]] void Throw() const {
    throw DeviceError(
        DeviceError::Kind::kPeerLost,
        absl::StrCat(OperationUnderWay(), ": world rank ", hub_.aborted_by.load(), " has aborted"));
  }

  Hub& hub_;
  const std::shared_ptr<Meeting> meeting_;
  std::vector<const void*> parts_;  // Used by CombineParts.
};

void LocalWorld::Rank::Member::DoPostSend(ConstTensor data, Message to) {
  Channel& channel = meeting_->channel(rank(), to.peer);
  const MutexLock lock(channel.mutex);
  if (channel.aborted) Throw();
  Channel::Posted& posted = channel.posted.emplace_back();
  posted.data = data;
  if (!channel.spare.empty()) {
    posted.copy = std::move(channel.spare.back());
    channel.spare.pop_back();
  }
  posted.copy.resize(data.bytes());
  Copy(posted.copy.data(), data.data, data.bytes());
  channel.changed.NotifyAll();
}

void LocalWorld::Rank::Member::DoReceive(Tensor data, Message from) {
  Channel& channel = meeting_->channel(from.peer, rank());
  MutexLock lock(channel.mutex);
  while (channel.posted.size() <= channel.position() && !channel.aborted) {
    channel.changed.Wait(channel.mutex);
  }
  if (channel.aborted) Throw();
  const Channel::Posted& posted = channel.posted[channel.position()];
  CHECK(posted.data.dtype == data.dtype && posted.data.elements() == data.elements())
      << OperationUnderWay() << ": expects " << data.dtype << data.shape << ", is sent "
      << posted.data.dtype << posted.data.shape;
  Copy(data.data, posted.copy.data(), data.bytes());
  ++channel.received;
  channel.changed.NotifyAll();
}

void LocalWorld::Rank::Member::DoWaitSend(Message to) {
  Channel& channel = meeting_->channel(rank(), to.peer);
  MutexLock lock(channel.mutex);
  while (channel.received <= to.n && !channel.aborted) channel.changed.Wait(channel.mutex);
  if (channel.aborted) Throw();
  CHECK(to.n >= channel.first && !channel.posted[size_t(to.n - channel.first)].waited_for)
      << OperationUnderWay() << ": waited for already";
  Channel::Posted& posted = channel.posted[size_t(to.n - channel.first)];
  const size_t bytes = posted.copy.size();
  CHECK(bytes == 0 || std::memcmp(posted.data.data, posted.copy.data(), bytes) == 0)
      << OperationUnderWay() << ": the data changed before it was waited for";
  posted.waited_for = true;
  for (; !channel.posted.empty() && channel.posted.front().waited_for; ++channel.first) {
    channel.spare.push_back(std::move(channel.posted.front().copy));
    channel.posted.pop_front();
  }
}

absl::StatusOr<std::unique_ptr<Collective>> LocalWorld::Rank::MakeGroup(
    const std::string& name, const std::vector<int>& members) {
  const int rank = RankIn(members);
  auto meeting = hub_.Join(rank_, name, members);
  if (!meeting.ok()) return meeting.status();
  return std::make_unique<Member>(hub_, *std::move(meeting), name, members, rank);
}

LocalWorld::LocalWorld(int size) : hub_(std::make_unique<Hub>(size)) {
  for (int i = 0; i < size; ++i) ranks_.push_back(std::make_unique<Rank>(*hub_, i));
}
LocalWorld::~LocalWorld() = default;

}  // namespace trainyard
