#include <cuda_runtime.h>
#include <nccl.h>

#include <deque>
#include <map>
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
  }
  CHECK(false) << "dtype " << int(dtype);
  return ncclInt8;
}

// Gives a pair's communicator the messages to one rank, in order, on its own thread. The first
// message waits until that rank receives it.
class Sender {
 public:
  Sender(NcclRank& rank, nccl::Listener& listener, const std::string& key)
      : rank_(rank), listener_(listener), key_(key), thread_([this] { Loop(); }) {}
  ~Sender() {
    End();
    thread_.join();
  }

  // Call this when no more messages come. Returns whether all have been given.
  bool End() {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
    return queue_.empty();
  }

  // Posts a message to be sent after the work that `stream` has been given so far.
  absl::Status Post(const ConstTensor& data, const Collective::Begun& operation,
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
    RETURN_IF_ERROR(nccl::ToStatus(cudaEventRecord(after->get(), stream)));
    queue_.push_back({data, operation, std::move(after)});
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // Orders all later work on `stream` after message n, counted from 0.
  absl::Status Await(int64_t n, cudaStream_t stream) {
    const MutexLock lock(mutex_);
    while (given_ <= n && failure_.ok()) changed_.Wait(mutex_);
    return given_ > n ? pair_->Await(n + 1, stream) : failure_;
  }

 private:
  struct Posted {
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
      const absl::Status status = Send(next);
      lock.Lock();
      changed_.NotifyAll();
      if (!status.ok()) {
        failure_ = status;
        for (const Posted& left : queue_) listener_.Ended(left.operation, std::nullopt, false);
        rank_.Fail(nccl::KindOf(status),
                   absl::StrCat(listener_.Describe(next.operation.record), ": ", status.message()));
        break;
      }
      spare_.push_back(std::move(queue_.front().after));
      queue_.pop_front();
      ++given_;
    }
    while (!ended_) changed_.Wait(mutex_);
    lock.Unlock();
    pair_ = nullptr;  // Here, so that the communicators of all peers wait at the same time.
  }

  absl::Status Send(const Posted& next) {
    if (pair_ == nullptr) {
      ASSIGN_OR_RETURN(pair_, Communicator::Create(rank_, listener_, {key_, 2, 0},
                                                   Deadline(rank_.options().timeout)));
    }
    const ConstTensor& data = next.data;
    return pair_
        ->Give(next.operation, *next.after,
               [&](ncclComm_t comm, cudaStream_t stream) {
                 return ncclSend(data.data, data.bytes(), ncclUint8, 1, comm, stream);
               })
        .status();
  }

  NcclRank& rank_;
  nccl::Listener& listener_;
  const std::string key_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Posted> queue_ ABSL_GUARDED_BY(mutex_);  // The first one is being given.
  std::vector<std::unique_ptr<DeviceEvent>> spare_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Communicator> pair_;  // Set by the thread before the first message.
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // Last, because it uses the members above.
};

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
    Sender& sender =
        senders_.try_emplace(to.peer, shared_, *this, PairKey(rank(), to.peer)).first->second;
    Finish(sender.Post(data, begun(), stream()));
    GoesOn();
  }
  // The device only waits, so the host's time is counted.
  void DoWaitSend(Message to) override { Finish(senders_.at(to.peer).Await(to.n, stream())); }

  void DoReceive(Tensor data, Message from) override {
    std::unique_ptr<Communicator>& pair = receivers_[from.peer];
    if (pair == nullptr) {
      auto made = Communicator::Create(shared_, *this, {PairKey(from.peer, rank()), 2, 1},
                                       Deadline(shared_.options().timeout));
      Finish(made.status());
      pair = *std::move(made);
    }
    Run(*pair, [&](ncclComm_t comm, cudaStream_t stream) {
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
    Finish(nccl::ToStatus(cudaEventRecord(after_.get(), stream())));
    const auto number = communicator.Give(begun(), after_, enqueue);
    Finish(number.status());
    GoesOn();
    Finish(communicator.Await(*number, stream()));
    return *number;
  }
  Communicator::Number Run(Communicator::Enqueue enqueue) { return Run(*all_, enqueue); }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(followed().stream); }
  std::string PairKey(int from, int to) const {
    return absl::StrCat(all_->key(), "/", from, "-", to);
  }

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
  std::map<int, Sender> senders_;  // This and the next: by peer.
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
    const std::string what = absl::StrCat("group ", name, ": ", made.status().message());
    shared_.Fail(DeviceError::Kind::kPeerLost, what);
    return absl::UnavailableError(what);
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
