#include "tests/train/step/held_up.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "common/clock.h"

namespace trainyard::testing {
namespace {

// In every dtype of floating point: no number.
void Spoil(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0xff, bytes);
}

void Read(const ConstTensor& tensor) {
  const auto* const begin = static_cast<const volatile unsigned char*>(tensor.data);
  for (size_t i = 0; i < tensor.bytes(); ++i) std::ignore = begin[i];
}

// The same, after each byte was written as it was.
Tensor Rewritten(Tensor tensor) {
  auto* const begin = static_cast<volatile unsigned char*>(tensor.data);
  for (size_t i = 0; i < tensor.bytes(); ++i) begin[i] = begin[i];
  return tensor;
}

bool Overlap(const ConstTensor& a, const ConstTensor& b) {
  const auto* const x = static_cast<const std::byte*>(a.data);
  const auto* const y = static_cast<const std::byte*>(b.data);
  return x < y + b.bytes() && y < x + a.bytes();
}

void Pause(std::chrono::microseconds most, std::mt19937_64& random) {
  std::this_thread::sleep_for(most * int(random() % 8) / 8);
}

}  // namespace

class HeldUpWorld::Group final : public Collective {
 public:
  Group(HeldUpWorld& world, std::unique_ptr<Collective> group)
      : Collective(group->name(), group->members(), group->rank()),
        world_(world),
        group_(std::move(group)) {}

  void Check() override { group_->Check(); }
  void Abort() override { group_->Abort(); }

 private:
  // To call the operation on, once it was held up. Reads what it will read, and marks what it will
  // write, with code that the thread sanitizer sees: Gloo's is not built for the sanitizer.
  Collective& Late(ConstTensor read) {
    Read(read);
    world_.HoldUp();
    return *group_;
  }

  void DoAllReduceSum(Tensor data) override { Late(Rewritten(data)).AllReduceSum(data); }
  void DoAllReduceMax(Tensor data) override { Late(Rewritten(data)).AllReduceMax(data); }
  void DoBroadcast(Tensor data, int root) override {
    Late(rank() == root ? data : Rewritten(data)).Broadcast(data, root);
  }
  void DoBarrier() override { Late({}).Barrier(); }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Late(all).ReduceScatterSum(all, Rewritten(mine));
  }
  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    Late(send).AllToAll(send, send_rows, receive, receive_rows);
  }

  void DoAllGather(ConstTensor mine, Tensor all) override {
    const size_t before = mine.bytes() * size_t(rank()), upto = before + mine.bytes();
    std::byte* const begin = static_cast<std::byte*>(all.data);  // Own slice: may be `mine`.
    Spoil(begin, before);
    Spoil(begin + upto, mine.bytes() * size_t(size()) - upto);
    Late(mine).AllGather(mine, all);
  }

  void DoPostSend(ConstTensor data, Message to) override {
    Late(data).PostSend(data, to.peer);
    sent_.push_back({to, data});
  }
  void DoWaitSend(Message to) override {
    Late({}).WaitSend(to);
    std::erase_if(sent_, [&](const auto& message) {
      return message.first.peer == to.peer && message.first.n == to.n;
    });
  }
  void DoPostReceive(Tensor data, Message from) override {
    // A message may be expected in memory that the peer still reads.
    if (std::none_of(sent_.begin(), sent_.end(),
                     [&](const auto& message) { return Overlap(message.second, data); })) {
      Spoil(data.data, data.bytes());
    }
    group_->PostReceive(data, from.peer);
  }
  void DoReceive(Tensor, Message from) override { Late({}).WaitReceive(from); }

  HeldUpWorld& world_;
  const std::unique_ptr<Collective> group_;
  std::vector<std::pair<Message, ConstTensor>> sent_;  // Not yet waited for.
};

HeldUpWorld::HeldUpWorld(CollectiveWorld& world, uint64_t seed)
    : world_(world),
      compute_random_(seed * 64 + 2 * uint64_t(world.rank())),
      communication_random_(seed * 64 + 2 * uint64_t(world.rank()) + 1) {}

absl::StatusOr<std::unique_ptr<Collective>> HeldUpWorld::MakeGroup(
    const std::string& name, const std::vector<int>& members) {
  absl::StatusOr<std::unique_ptr<Collective>> group = world_.Group(name, members);
  if (!group.ok()) return group.status();
  return std::make_unique<Group>(*this, *std::move(group));
}

void HeldUpWorld::SetWaiting(bool waiting) {
  const MutexLock lock(mutex_);
  waiting_ = waiting;
  changed_.NotifyAll();
}

void HeldUpWorld::HoldUp() {
  constexpr std::chrono::microseconds kMoment(100);
  if (OnComputeThread()) {
    if (compute_random_() % 16 == 0) Pause(kMoment, compute_random_);
    return;
  }
  switch (communication_random_() % 4) {
    case 0:
      return;
    case 1:
      return Pause(kMoment, communication_random_);
    default:
      return HoldUpUntilAwaited();
  }
}

void HeldUpWorld::HoldUpUntilAwaited() {
  const absl::Duration deadline = RealClock().Monotonic() + kPatience;
  MutexLock lock(mutex_);
  while (!waiting_ && changed_.WaitUntil(mutex_, deadline)) continue;
}

}  // namespace trainyard::testing
