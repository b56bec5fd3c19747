// The common part of all implementations: checks the arguments, and records and counts the
// operations.

#include "kernels/collective/collective.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/collective/world.h"

namespace trainyard {
namespace {

void CheckSlices(const ConstTensor& whole, const ConstTensor& slice, int ranks) {
  CHECK(whole.dtype == slice.dtype && whole.elements() == ranks * slice.elements())
      << ranks << " slices " << slice.dtype << slice.shape << " are not " << whole.dtype
      << whole.shape;
}

int64_t BytesPerRow(const ConstTensor& tensor) {
  CHECK(tensor.shape.rank() >= 1) << "a scalar has no rows";
  int64_t bytes = int64_t(SizeOf(tensor.dtype));
  for (int i = 1; i < tensor.shape.rank(); ++i) bytes *= tensor.shape[i];
  return bytes;
}

void CheckRows(const ConstTensor& tensor, std::span<const int64_t> rows, int ranks) {
  CHECK(int(rows.size()) == ranks) << rows.size() << " blocks for " << ranks << " ranks";
  int64_t sum = 0;
  for (int64_t n : rows) {
    CHECK(n >= 0) << "a block of " << n << " rows";
    sum += n;
  }
  CHECK(sum <= tensor.shape[0]) << sum << " rows in " << tensor.dtype << tensor.shape;
}

}  // namespace

Collective::Collective(std::string name, std::vector<int> members, int rank)
    : name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank),
      sent_(members_.size()),
      received_(members_.size()),
      recorder_(std::make_shared<FlightRecorder>(
          absl::StrCat("group ", name_, ", rank ", rank, " of ", members_.size(), " (world rank ",
                       members_.at(size_t(rank)), ")"))) {}

void Collective::Follow(const Backend& backend, const Exec& exec) {
  backend_ = &backend;
  exec_ = &exec;
}

void Collective::Unfollow(const Exec& exec) {
  if (exec_ != &exec) return;
  backend_ = nullptr;
  exec_ = nullptr;
}

void Collective::SettleDevice() const {
  if (backend_ != nullptr && !is_on_device()) backend_->Synchronize(*exec_);
}

void Collective::CountUnderWay(int change) {
  if (activity_ != nullptr) activity_->under_way += change;
}

void Collective::Ended(const Begun& operation, std::optional<absl::Duration> took) {
  if (activity_ != nullptr) ++activity_->done;
  if (!took) return;
  recorder_->Leave(operation.number, absl::Now());
  counters_[size_t(operation.record.op)].nanoseconds += absl::ToInt64Nanoseconds(*took);
}

std::string Collective::Describe(const FlightRecord& operation) const {
  std::string text = absl::StrCat(Name(operation.op), " ", operation.sequence);
  if (operation.to >= 0) absl::StrAppend(&text, " to world rank ", operation.to);
  if (operation.from >= 0) absl::StrAppend(&text, " from world rank ", operation.from);
  return absl::StrCat(text, " of ", recorder_->group());
}

int64_t SentBytes(CollectiveOp op, int64_t bytes, int ranks) {
  switch (op) {
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kAllReduceMax:
      return 2 * bytes * (ranks - 1) / ranks;
    case CollectiveOp::kBroadcast:
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatterSum:
    case CollectiveOp::kAllToAll:
      return bytes * (ranks - 1) / ranks;
    case CollectiveOp::kSend:
    case CollectiveOp::kSendReceive:
      return bytes;
    case CollectiveOp::kBarrier:
    case CollectiveOp::kWaitSend:
    case CollectiveOp::kReceive:
      break;
  }
  return 0;
}

OpCounts Collective::counts(CollectiveOp op) const {
  const Counters& counters = counters_[size_t(op)];
  return {counters.calls, counters.bytes, 1e-9 * double(counters.nanoseconds)};
}

template <typename F>
void Collective::Note(FlightRecord record, int64_t sent, F&& f) {
  // Ends the record also if the operation throws.
  struct Call {
    Collective& group;
    std::optional<absl::Duration> took = std::nullopt;
    ~Call() {
      if (!group.goes_on_) group.Ended(group.begun_, took);
      group.CountUnderWay(-1);
    }
  };
  record.entered = absl::Now();
  begun_ = {.record = record, .number = recorder_->Enter(record)};
  goes_on_ = false;
  CountUnderWay(1);
  Call call{*this};
  SettleDevice();
  const auto start = std::chrono::steady_clock::now();
  f();
  call.took = absl::FromChrono(std::chrono::steady_clock::now() - start);
  Counters& counters = counters_[size_t(record.op)];
  counters.calls += 1;
  counters.bytes += sent;
}

void Collective::CheckPeer(int peer) const {
  CHECK(peer >= 0 && peer < size() && peer != rank_)
      << "peer " << peer << " of rank " << rank_ << " of " << size();
}

absl::Status Collective::Connect(const Connections& connections) {
  CHECK(!connections_) << "group " << name_ << " has been connected before";
  for (const std::set<RankPair>* pairs : {&connections.messages, &connections.exchanges}) {
    for (const auto& [from, to] : *pairs) {
      CHECK(from == rank_ || to == rank_) << "rank " << rank_ << " of group " << name_
                                          << " connects ranks " << from << " and " << to;
      CheckPeer(from == rank_ ? to : from);
    }
  }
  connections_ = connections;
  return DoConnect(connections);
}

absl::Status Collective::DoConnect(const Connections&) { return absl::OkStatus(); }

void Collective::CheckConnected(std::set<RankPair> Connections::*pairs, RankPair pair) const {
  CHECK(!connections_ || ((*connections_).*pairs).contains(pair))
      << "rank " << pair.from << " sends to rank " << pair.to << " of group " << name_
      << ", which Connect was not told";
}

void Collective::AllReduceSum(Tensor data) {
  const int64_t bytes = int64_t(data.bytes());
  Note({.op = CollectiveOp::kAllReduceSum, .sequence = ++collectives_, .bytes = bytes},
       [&] { DoAllReduceSum(data); });
}

void Collective::AllReduceMax(Tensor data) {
  const int64_t bytes = int64_t(data.bytes());
  Note({.op = CollectiveOp::kAllReduceMax, .sequence = ++collectives_, .bytes = bytes},
       [&] { DoAllReduceMax(data); });
}

void Collective::Broadcast(Tensor data, int root) {
  CHECK(root >= 0 && root < size()) << "root " << root << " of " << size();
  const int64_t bytes = int64_t(data.bytes());
  Note({.op = CollectiveOp::kBroadcast,
        .sequence = ++collectives_,
        .bytes = bytes,
        .from = world_rank(root)},
       [&] { DoBroadcast(data, root); });
}

void Collective::Barrier() {
  Note({.op = CollectiveOp::kBarrier, .sequence = ++collectives_}, [&] { DoBarrier(); });
}

void Collective::AllGather(ConstTensor mine, Tensor all) {
  CheckSlices(all, mine, size());
  const int64_t bytes = int64_t(all.bytes());
  Note({.op = CollectiveOp::kAllGather, .sequence = ++collectives_, .bytes = bytes},
       [&] { DoAllGather(mine, all); });
}

void Collective::ReduceScatterSum(ConstTensor all, Tensor mine) {
  CheckSlices(all, mine, size());
  const int64_t bytes = int64_t(all.bytes());
  Note({.op = CollectiveOp::kReduceScatterSum, .sequence = ++collectives_, .bytes = bytes},
       [&] { DoReduceScatterSum(all, mine); });
}

void Collective::AllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                          std::span<const int64_t> receive_rows) {
  const int64_t row = BytesPerRow(send);
  CHECK(send.dtype == receive.dtype && row == BytesPerRow(receive))
      << "rows differ: " << send.dtype << send.shape << " to " << receive.dtype << receive.shape;
  CheckRows(send, send_rows, size());
  CheckRows(receive, receive_rows, size());
  CHECK(send_rows[size_t(rank_)] == receive_rows[size_t(rank_)])
      << "rank " << rank_ << " sends itself " << send_rows[size_t(rank_)] << " rows and expects "
      << receive_rows[size_t(rank_)];
  const auto sum = [](std::span<const int64_t> rows) {
    return std::accumulate(rows.begin(), rows.end(), int64_t{0});
  };
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    CheckConnected(&Connections::exchanges, {rank_, peer});
    CheckConnected(&Connections::exchanges, {peer, rank_});
  }
  const int64_t sent = sum(send_rows), received = sum(receive_rows);
  Note({.op = CollectiveOp::kAllToAll,
        .sequence = ++collectives_,
        .bytes = std::max(sent, received) * row},
       (sent - send_rows[size_t(rank_)]) * row,
       [&] { DoAllToAll(send, send_rows, receive, receive_rows); });
}

SendHandle Collective::PostSend(ConstTensor data, int peer) {
  CheckPeer(peer);
  CheckConnected(&Connections::messages, {rank_, peer});
  const Message message{peer, sent_[size_t(peer)]++};
  const int64_t bytes = int64_t(data.bytes());
  Note({.op = CollectiveOp::kSend,
        .sequence = message.n + 1,
        .bytes = bytes,
        .to = world_rank(peer)},
       [&] { DoPostSend(data, message); });
  return message;
}

void Collective::WaitSend(SendHandle message) {
  CheckPeer(message.peer);
  Note({.op = CollectiveOp::kWaitSend, .sequence = message.n + 1, .to = world_rank(message.peer)},
       [&] { DoWaitSend(message); });
}

void Collective::Receive(Tensor data, int peer) { WaitReceive(PostReceive(data, peer)); }

ReceiveHandle Collective::PostReceive(Tensor data, int peer) {
  CheckPeer(peer);
  CheckConnected(&Connections::messages, {peer, rank_});
  const Message message{peer, received_[size_t(peer)]++};
  posted_receives_.push_back({message, data});
  begun_.record = {.op = CollectiveOp::kReceive,
                   .sequence = message.n + 1,
                   .bytes = int64_t(data.bytes()),
                   .from = world_rank(peer)};
  SettleDevice();
  DoPostReceive(data, message);
  return message;
}

void Collective::WaitReceive(ReceiveHandle message) {
  const auto posted =
      std::find_if(posted_receives_.begin(), posted_receives_.end(),
                   [&](const auto& other) { return other.first.peer == message.peer; });
  CHECK(posted != posted_receives_.end() && posted->first.n == message.n)
      << "message " << message.n << " of rank " << message.peer
      << " was not posted, or is not the next";
  const Tensor data = posted->second;
  posted_receives_.erase(posted);
  Note({.op = CollectiveOp::kReceive,
        .sequence = message.n + 1,
        .bytes = int64_t(data.bytes()),
        .from = world_rank(message.peer)},
       [&] { DoReceive(data, message); });
}

void Collective::DoPostReceive(Tensor, Message) {}

void Collective::SendReceive(ConstTensor send, int to, Tensor receive, int from) {
  const bool alone = to == rank_;
  CHECK(alone == (from == rank_)) << "rank " << rank_ << " sends to " << to << ", receives from "
                                  << from << ": both or none may be itself";
  if (alone) {
    CHECK(send.bytes() == receive.bytes()) << send.shape << " to " << receive.shape;
  } else {
    CheckPeer(to);
    CheckPeer(from);
    CheckConnected(&Connections::exchanges, {rank_, to});
    CheckConnected(&Connections::exchanges, {from, rank_});
  }
  const Message out{to, sent_[size_t(to)]++}, in{from, received_[size_t(from)]++};
  Note({.op = CollectiveOp::kSendReceive,
        .sequence = out.n + 1,
        .bytes = int64_t(std::max(send.bytes(), receive.bytes())),
        .to = world_rank(to),
        .from = world_rank(from)},
       alone ? 0 : int64_t(send.bytes()), [&] { DoSendReceive(send, out, receive, in); });
}

void Collective::DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from) {
  if (to.peer == rank_) {
    if (send.bytes() > 0) std::memcpy(receive.data, send.data, send.bytes());
    return;
  }
  DoPostReceive(receive, from);
  DoPostSend(send, to);
  DoReceive(receive, from);
  DoWaitSend(to);
}

absl::StatusOr<std::unique_ptr<Collective>> CollectiveWorld::Group(
    const std::string& name, const std::vector<int>& members) {
  absl::StatusOr<std::unique_ptr<Collective>> group = MakeGroup(name, members);
  if (group.ok() && activity_ != nullptr) {
    (*group)->activity_ = activity_;
    activity_->Add((*group)->recorder_);
  }
  return group;
}

absl::StatusOr<std::unique_ptr<Collective>> CollectiveWorld::Everyone() {
  std::vector<int> members(size_t(size()), 0);
  std::iota(members.begin(), members.end(), 0);
  return Group("everyone", members);
}

int CollectiveWorld::RankIn(const std::vector<int>& members) const {
  int found = -1;
  std::vector<bool> seen(size_t(size()), false);
  for (size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    CHECK(member >= 0 && member < size() && !seen[size_t(member)])
        << "member " << member << " in a world of " << size() << ": outside, or twice";
    seen[size_t(member)] = true;
    if (member == rank()) found = int(i);
  }
  CHECK(found >= 0) << "rank " << rank() << " makes a group that it is no member of";
  return found;
}

}  // namespace trainyard
