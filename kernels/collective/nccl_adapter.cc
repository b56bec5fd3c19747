#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "kernels/collective/nccl.h"
#include "kernels/collective/nccl_communicator.h"

namespace trainyard {
namespace {

using nccl::Communicator;
using nccl::Deadline;
using nccl::DeviceEvent;
using nccl::NcclRank;

ncclDataType_t NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI16:
    case DType::kU8:
      break;  // Nothing is reduced in them.
  }
  CHECK(false) << "dtype " << int(dtype);
  return ncclInt8;
}

// Gives a pair's communicator the messages to one rank, in order. It has its own thread, because a
// communicator that has many messages under way takes no further one until some are received.
class Sender {
 public:
  Sender(NcclRank& rank, nccl::Listener& listener, std::unique_ptr<Communicator> pair)
      : rank_(rank), listener_(listener), pair_(std::move(pair)), thread_([this] { Loop(); }) {}
  ~Sender() {
    End();
    thread_.join();
  }

  // Call this when no more messages come. Returns whether all have been waited for.
  bool End() {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
    return queue_.empty() && given_.empty();
  }

  // Posts message n to be sent after the work that `stream` has been given so far. Numbers ascend.
  // Some are missing: SendReceive is counted with the messages, but does not use the pair.
  absl::Status Post(int64_t n, const ConstTensor& data, const Collective::Begun& operation,
                    cudaStream_t stream) {
    const MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);
    std::unique_ptr<DeviceEvent> after;
    if (spare_.empty()) {
      after = std::make_unique<DeviceEvent>(cudaEventDisableTiming);
    } else {
      after = std::move(spare_.back());
      spare_.pop_back();
    }
    RETURN_IF_ERROR(rank_.ToStatus(cudaEventRecord(after->get(), stream)));
    queue_.push_back({n, data, operation, std::move(after)});
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // Orders all later work on `stream` after message n.
  absl::Status Await(int64_t n, cudaStream_t stream) {
    const MutexLock lock(mutex_);
    while (last_given_ < n && failure_.ok()) changed_.Wait(mutex_);
    const auto given = given_.extract(n);
    CHECK(given || !failure_.ok()) << "message " << n << ": waited for already";
    return given ? pair_->Await(given.mapped(), stream) : failure_;
  }

 private:
  struct Posted {
    int64_t n = 0;
    ConstTensor data;
    Collective::Begun operation;
    std::unique_ptr<DeviceEvent> after;
  };

  void Loop() {
    MutexLock lock(mutex_);
    for (;;) {
      while (queue_.empty() && !ended_) changed_.Wait(mutex_);
      if (queue_.empty()) break;
      const Posted& next = queue_.front();  // It stays at its place.
      lock.Unlock();
      const absl::StatusOr<Communicator::Number> number = Send(next);
      lock.Lock();
      changed_.NotifyAll();
      if (!number.ok()) {
        failure_ = number.status();
        for (const Posted& left : queue_) listener_.Ended(left.operation, std::nullopt, false);
        rank_.Fail(nccl::KindOf(failure_), absl::StrCat(listener_.Describe(next.operation.record),
                                                        ": ", failure_.message()));
        break;
      }
      last_given_ = next.n;
      given_.emplace(next.n, *number);
      spare_.push_back(std::move(queue_.front().after));
      queue_.pop_front();
    }
    while (!ended_) changed_.Wait(mutex_);
    lock.Unlock();
    pair_ = nullptr;  // Here, so that the communicators of all peers wait at the same time.
  }

  absl::StatusOr<Communicator::Number> Send(const Posted& next) {
    const ConstTensor& data = next.data;
    return pair_->Give(next.operation, *next.after, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(data.data, data.bytes(), ncclUint8, 1, comm, stream);
    });
  }

  NcclRank& rank_;
  nccl::Listener& listener_;
  std::unique_ptr<Communicator> pair_;  // The thread destroys it.
  Mutex mutex_;
  CondVar changed_;
  std::deque<Posted> queue_ ABSL_GUARDED_BY(mutex_);  // The first one is being given.
  std::vector<std::unique_ptr<DeviceEvent>> spare_ ABSL_GUARDED_BY(mutex_);
  // The messages that have been given and not waited for, with their numbers in the communicator.
  std::map<int64_t, Communicator::Number> given_ ABSL_GUARDED_BY(mutex_);
  int64_t last_given_ ABSL_GUARDED_BY(mutex_) = -1;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // Last, because it uses the members above.
};

// Notes that a group could not be made or connected: INTERNAL if this rank's device failed.
absl::Status Unconnected(NcclRank& rank, const std::string& group, const absl::Status& status) {
  const std::string what = absl::StrCat("group ", group, ": ", status.message());
  rank.Fail(nccl::KindOf(status), what);
  const bool device = nccl::KindOf(status) == DeviceError::Kind::kDevice;
  return device ? absl::InternalError(what) : absl::UnavailableError(what);
}

// Also the listener of its own operations, on the watchdog's thread among others.
class NcclCollective final : public Collective, public nccl::Listener {
 public:
  static absl::StatusOr<std::unique_ptr<Collective>> Create(NcclRank& shared,
                                                            const std::string& key,
                                                            const std::string& name,
                                                            const std::vector<int>& members,
                                                            int rank) {
    std::unique_ptr<NcclCollective> made(new NcclCollective(shared, name, members, rank));
    ASSIGN_OR_RETURN(made->all_,
                     Communicator::Create(shared, *made, {key, int(members.size()), rank},
                                          Deadline(shared.options().connect_timeout)));
    return made;
  }
  ~NcclCollective() override {
    // End all senders before any communicator is destroyed, because each waits for its other end.
    for (auto& [peer, sender] : senders_) {
      if (!sender.End()) Abort();
    }
  }

  void Abort() override { shared_.Fail(DeviceError::Kind::kPeerLost, "aborted"); }
  void Check() override { shared_.Check(); }

 private:
  NcclCollective(NcclRank& shared, const std::string& name, const std::vector<int>& members,
                 int rank)
      : Collective(name, members, rank), shared_(shared), after_(cudaEventDisableTiming) {}

  bool is_on_device() const override { return true; }
  void Began() override { CountUnderWay(1); }
  void Ended(const Begun& operation, std::optional<double> seconds, bool had_begun) override {
    if (had_begun) CountUnderWay(-1);
    Collective::Ended(operation, seconds ? std::optional(absl::Seconds(*seconds)) : std::nullopt);
  }
  std::string Describe(const FlightRecord& operation) const override {
    return Collective::Describe(operation);
  }

  absl::Status DoConnect(const Connections& connections) override {
    const absl::Status status = ConnectAll(connections);
    return status.ok() ? status : Unconnected(shared_, name(), status);
  }
  // Waits for the other rank of each pair, in one order that all ranks share, then for all ranks
  // that this one exchanges data with, and at the end for the whole group.
  // Each wait lasts until the device is done, because no communicator may be made beside work. If
  // ranks connect their groups in one order, no cycle of them waits (proof: rank_engine.cc).
  absl::Status ConnectAll(const Connections& connections) {
    // In a ring, first every second pair, so that the pairs do not wait for one another in a row.
    std::vector<RankPair> pairs(connections.messages.begin(), connections.messages.end());
    std::stable_sort(pairs.begin(), pairs.end(), [](const RankPair& a, const RankPair& b) {
      return std::min(a.from, a.to) % 2 < std::min(b.from, b.to) % 2;
    });
    for (const RankPair& pair : pairs) RETURN_IF_ERROR(ConnectPair(pair));
    const Deadline deadline(shared_.options().connect_timeout);
    if (!connections.exchanges.empty()) {
      RETURN_IF_ERROR(Greet(*all_, connections.exchanges, deadline));
    }
    return all_->RunNow(
        [&](ncclComm_t comm, cudaStream_t stream) { return all_->Meet(comm, stream); }, deadline);
  }
  absl::Status ConnectPair(const RankPair& pair) {
    const bool sends = pair.from == rank();
    const std::string key = absl::StrCat(all_->key(), "/", pair.from, "-", pair.to);
    const Deadline deadline(shared_.options().connect_timeout);
    ASSIGN_OR_RETURN(std::unique_ptr<Communicator> made,
                     Communicator::Create(shared_, *this, {key, 2, sends ? 0 : 1}, deadline));
    RETURN_IF_ERROR(Greet(*made, {RankPair{0, 1}}, deadline));
    if (sends) {
      senders_.try_emplace(pair.to, shared_, *this, std::move(made));
    } else {
      receivers_.emplace(pair.from, std::move(made));
    }
    return absl::OkStatus();
  }
  // Sends a byte along the pairs now, because NCCL connects two ranks at their first message.
  static absl::Status Greet(Communicator& communicator, const std::set<RankPair>& pairs,
                            const Deadline& deadline) {
    return communicator.RunNow(
        [&](ncclComm_t comm, cudaStream_t stream) {
          return communicator.Greet(pairs, comm, stream);
        },
        deadline);
  }

  void DoAllReduceSum(Tensor data) override { Reduce(data, ncclSum); }
  void DoAllReduceMax(Tensor data) override { Reduce(data, ncclMax); }
  void DoBroadcast(Tensor data, int root) override {
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data.data, data.data, data.bytes(), ncclUint8, root, comm, stream);
    });
  }
  // A barrier of the hosts: returns when all ranks have called it.
  void DoBarrier() override {
    const auto number =
        Run([&](ncclComm_t comm, cudaStream_t stream) { return all_->Meet(comm, stream); });
    Finish(all_->WaitFor(number, Deadline(absl::InfiniteDuration())));  // It has its own deadline.
  }
  void DoAllGather(ConstTensor mine, Tensor all) override {
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(mine.data, all.data, mine.bytes(), ncclUint8, comm, stream);
    });
  }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(all.data, mine.data, size_t(mine.elements()), NcclType(mine.dtype),
                               ncclSum, comm, stream);
    });
  }

  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    const auto bytes_per_row = [](const ConstTensor& tensor) {
      return tensor.bytes() == 0 ? 0 : tensor.bytes() / size_t(tensor.shape[0]);
    };
    const size_t send_row = bytes_per_row(send), receive_row = bytes_per_row(receive);
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      const auto* from = static_cast<const std::byte*>(send.data);
      auto* to = static_cast<std::byte*>(receive.data);
      ncclResult_t result = ncclSuccess;
      for (int peer = 0; peer < size() && result == ncclSuccess; ++peer) {
        const size_t out = send_row * size_t(send_rows[size_t(peer)]);
        const size_t in = receive_row * size_t(receive_rows[size_t(peer)]);
        if (out > 0) result = ncclSend(from, out, ncclUint8, peer, comm, stream);
        if (in > 0 && result == ncclSuccess) {
          result = ncclRecv(to, in, ncclUint8, peer, comm, stream);
        }
        from += out;
        to += in;
      }
      return result;
    });
  }

  void DoPostSend(ConstTensor data, Message to) override {
    const auto sender = senders_.find(to.peer);
    CHECK(sender != senders_.end()) << OperationUnderWay() << ": Connect was not told of the pair";
    Finish(sender->second.Post(to.n, data, begun(), stream()));
    GoesOn();
  }
  // The device only waits, so the host's time is counted.
  void DoWaitSend(Message to) override { Finish(senders_.at(to.peer).Await(to.n, stream())); }

  void DoReceive(Tensor data, Message from) override {
    const auto pair = receivers_.find(from.peer);
    CHECK(pair != receivers_.end()) << OperationUnderWay() << ": Connect was not told of the pair";
    Run(*pair->second, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(data.data, data.bytes(), ncclUint8, 0, comm, stream);
    });
  }

  void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from) override {
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      const ncclResult_t sent = ncclSend(send.data, send.bytes(), ncclUint8, to.peer, comm, stream);
      if (sent != ncclSuccess) return sent;
      return ncclRecv(receive.data, receive.bytes(), ncclUint8, from.peer, comm, stream);
    });
  }

  void Reduce(Tensor data, ncclRedOp_t op) {
    Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(data.data, data.data, size_t(data.elements()), NcclType(data.dtype), op,
                           comm, stream);
    });
  }

  // Runs an operation after all work that the followed stream has been given, and before its later
  // work.
  Communicator::Number Run(Communicator& communicator, Communicator::Enqueue enqueue) {
    Finish(shared_.ToStatus(cudaEventRecord(after_.get(), stream())));
    const auto number = communicator.Give(begun(), after_, enqueue);
    Finish(number.status());
    GoesOn();
    Finish(communicator.Await(*number, stream()));
    return *number;
  }
  Communicator::Number Run(Communicator::Enqueue enqueue) { return Run(*all_, enqueue); }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(followed().stream); }

  // A failure means that this rank cannot continue.
  void Finish(const absl::Status& status) {
    if (status.ok()) return;
    const std::string what = absl::StrCat(OperationUnderWay(), ": ", status.message());
    shared_.Fail(nccl::KindOf(status), what);
    throw DeviceError(nccl::KindOf(status), what);
  }

  NcclRank& shared_;
  const DeviceEvent after_;  // Recorded on the followed stream at each call.
  std::unique_ptr<Communicator> all_;
  std::map<int, Sender> senders_;  // This and the next: by peer. DoConnect makes them.
  std::map<int, std::unique_ptr<Communicator>> receivers_;
};

class NcclWorld final : public CollectiveWorld {
 public:
  NcclWorld(const NcclOptions& options, Rendezvous& rendezvous) : shared_(options, rendezvous) {}

  int rank() const override { return shared_.options().rank; }
  int size() const override { return shared_.options().size; }
  void Abort() override { shared_.Fail(DeviceError::Kind::kPeerLost, "aborted"); }

  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    const int rank = RankIn(members);
    const std::string group = absl::StrCat("nccl/", name, "/", absl::StrJoin(members, ","));
    const std::string key = absl::StrCat(group, "/", made_[group]++);
    auto made = NcclCollective::Create(shared_, key, name, members, rank);
    if (made.ok()) return made;
    return Unconnected(shared_, name, made.status());
  }

 private:
  NcclRank shared_;
  std::map<std::string, int> made_;  // Number of groups so far, by name and members.
};

}  // namespace

std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous) {
  CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size)
      << "rank " << options.rank << " of " << options.size;
  return std::make_unique<NcclWorld>(options, rendezvous);
}

}  // namespace trainyard
