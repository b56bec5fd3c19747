#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/collective/nccl.h"

namespace trainyard {
namespace {

// What leaving a group waits for its peers.
constexpr absl::Duration kFarewell = absl::Seconds(10);

absl::Status ToStatus(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", cudaGetErrorString(error)));
}

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

// What the groups of a rank share.
struct Shared {
  NcclOptions options;
  Rendezvous& rendezvous;
  std::atomic<bool> aborted = false;
};

// One NCCL communicator with a stream of its own, of one thread. Errors: UNAVAILABLE aborted or a
// peer was lost, DEADLINE_EXCEEDED, INTERNAL the device; after one the communicator is of no more
// use.
class Communicator {
 public:
  // Waits for the other ranks. `key` names it among all communicators of the job.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(Shared& shared,
                                                              const std::string& key, int size,
                                                              int rank) {
    std::unique_ptr<Communicator> made(new Communicator(shared, key));
    const absl::Time deadline = absl::Now() + shared.options.connect_timeout;
    RETURN_IF_ERROR(ToStatus(cudaSetDevice(shared.options.device)));
    RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking)));
    RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&made->done_, cudaEventDisableTiming)));
    RETURN_IF_ERROR(ToStatus(cudaMalloc(&made->byte_, 1)));
    ncclUniqueId id;
    if (rank == 0) {
      RETURN_IF_ERROR(made->ToStatus(ncclGetUniqueId(&id)));
      RETURN_IF_ERROR(shared.rendezvous.Set(key, std::string(id.internal, sizeof(id.internal))));
    } else {
      ASSIGN_OR_RETURN(const std::string bytes,
                       shared.rendezvous.Get(key, shared.options.connect_timeout));
      if (bytes.size() != sizeof(id.internal)) {
        return absl::InvalidArgumentError(absl::StrCat(key, " holds ", bytes.size(), " bytes"));
      }
      std::memcpy(id.internal, bytes.data(), bytes.size());
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    RETURN_IF_ERROR(
        made->Settle(ncclCommInitRankConfig(&made->comm_, size, id, rank, &config), deadline));
    made->sound_ = true;
    return made;
  }

  // Waits briefly for the other ranks, which may still read what this one sent.
  ~Communicator() {
    if (comm_ != nullptr) {
      sound_ = sound_ && !shared_.aborted &&
               Settle(ncclCommFinalize(comm_), absl::Now() + kFarewell).ok();
      sound_ ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
    }
    if (byte_ != nullptr) cudaFree(byte_);
    if (done_ != nullptr) cudaEventDestroy(done_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  const std::string& key() const { return key_; }

  // Returns once all ranks have called it.
  absl::Status Meet() {
    return Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(byte_, byte_, 1, ncclUint8, ncclMax, comm, stream);
    });
  }

  // Calls enqueue(comm, stream), whose NCCL calls form one group, and waits until it is done. After
  // a failure the device waits for nobody any more, so that its memory can be freed.
  template <typename F>
  absl::Status Run(F&& enqueue) {
    if (comm_ == nullptr) return absl::UnavailableError("failed before");
    const absl::Status status = EnqueueAndWait(enqueue);
    if (!status.ok()) {
      ncclCommAbort(comm_);
      comm_ = nullptr;
    }
    return status;
  }

 private:
  template <typename F>
  absl::Status EnqueueAndWait(F&& enqueue) {
    const absl::Time deadline = absl::Now() + shared_.options.timeout;
    sound_ = false;                                                    // Until it has ended well.
    RETURN_IF_ERROR(ToStatus(cudaSetDevice(shared_.options.device)));  // Of this thread.
    RETURN_IF_ERROR(ToStatus(ncclGroupStart()));
    const ncclResult_t enqueued = enqueue(comm_, stream_);
    const ncclResult_t ended = ncclGroupEnd();
    RETURN_IF_ERROR(ToStatus(enqueued));
    RETURN_IF_ERROR(Settle(ended, deadline));
    RETURN_IF_ERROR(ToStatus(cudaEventRecord(done_, stream_)));
    for (;;) {
      const cudaError_t state = cudaEventQuery(done_);
      if (state != cudaErrorNotReady) {
        sound_ = state == cudaSuccess;
        return ToStatus(state);
      }
      ncclResult_t result = ncclSuccess;
      RETURN_IF_ERROR(ToStatus(ncclCommGetAsyncError(comm_, &result)));
      RETURN_IF_ERROR(ToStatus(result));
      RETURN_IF_ERROR(Patience(deadline));
    }
  }

  Communicator(Shared& shared, const std::string& key) : shared_(shared), key_(key) {}

  static absl::Status ToStatus(cudaError_t error) { return trainyard::ToStatus(error); }
  absl::Status ToStatus(ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    const std::string what =
        absl::StrCat("NCCL: ", ncclGetErrorString(result), ": ", ncclGetLastError(comm_));
    const bool peer = result == ncclRemoteError || result == ncclSystemError;
    return peer ? absl::UnavailableError(what) : absl::InternalError(what);
  }

  // Until a non-blocking call that returned `result` has taken effect.
  absl::Status Settle(ncclResult_t result, absl::Time deadline) {
    while (result == ncclInProgress) {
      RETURN_IF_ERROR(Patience(deadline));
      RETURN_IF_ERROR(ToStatus(ncclCommGetAsyncError(comm_, &result)));
    }
    return ToStatus(result);
  }

  absl::Status Patience(absl::Time deadline) const {
    if (shared_.aborted) return absl::UnavailableError("aborted");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("no word from all ranks before the deadline");
    }
    std::this_thread::yield();
    return absl::OkStatus();
  }

  Shared& shared_;
  const std::string key_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  void* byte_ = nullptr;  // What Meet sends.
  bool sound_ = false;    // Nothing is under way, nothing has failed.
};

// Sends messages to one rank, one after the other, on a thread.
class Sender {
 public:
  Sender(Shared& shared, std::string key)
      : shared_(shared), key_(std::move(key)), thread_([this] { Loop(); }) {}
  ~Sender() {
    End();
    thread_.join();
  }

  // No more messages come. Returns whether all have gone.
  bool End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    return queue_.empty();
  }

  void Post(ConstTensor data) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(data);
    changed_.notify_all();
  }
  // Until message n, counted from 0, is with the receiver.
  absl::Status Wait(int64_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sent_ > n || !status_.ok(); });
    return sent_ > n ? absl::OkStatus() : status_;
  }

 private:
  void Loop() {
    std::unique_ptr<Communicator> pair;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty() || ended_; });
      if (queue_.empty()) return;
      const ConstTensor data = queue_.front();
      lock.unlock();
      const absl::Status status = Send(pair, data);
      lock.lock();
      changed_.notify_all();
      if (!status.ok()) {
        status_ = status;
        return;
      }
      queue_.pop_front();
      ++sent_;
    }
  }

  absl::Status Send(std::unique_ptr<Communicator>& pair, const ConstTensor& data) {
    if (pair == nullptr) {
      ASSIGN_OR_RETURN(pair, Communicator::Create(shared_, key_, 2, 0));
    }
    return pair->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(data.data, data.bytes(), ncclUint8, 1, comm, stream);
    });
  }

  Shared& shared_;
  const std::string key_;
  std::mutex mutex_;  // Guards the rest.
  std::condition_variable changed_;
  std::deque<ConstTensor> queue_;  // The first is being sent.
  int64_t sent_ = 0;
  bool ended_ = false;
  absl::Status status_;
  std::thread thread_;  // Last: it uses the others.
};

class NcclCollective final : public Collective {
 public:
  NcclCollective(Shared& shared, std::unique_ptr<Communicator> all, const std::string& name,
                 const std::vector<int>& members, int rank)
      : Collective(name, members, rank), shared_(shared), all_(std::move(all)) {}
  ~NcclCollective() override {
    // All before any communicator goes, for each waits for its other end.
    for (auto& [peer, sender] : senders_) {
      if (!sender.End()) Abort();
    }
  }

  void Abort() override { shared_.aborted = true; }

 private:
  void DoAllReduceSum(Tensor data) override { Reduce(data, ncclSum); }
  void DoAllReduceMax(Tensor data) override { Reduce(data, ncclMax); }
  void DoBroadcast(Tensor data, int root) override {
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data.data, data.data, data.bytes(), ncclUint8, root, comm, stream);
    }));
  }
  void DoBarrier() override { Finish(all_->Meet()); }
  void DoAllGather(ConstTensor mine, Tensor all) override {
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(mine.data, all.data, mine.bytes(), ncclUint8, comm, stream);
    }));
  }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(all.data, mine.data, size_t(mine.elements()), NcclType(mine.dtype),
                               ncclSum, comm, stream);
    }));
  }

  void DoAllToAllRows(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                      std::span<const int64_t> receive_rows) override {
    const auto bytes_per_row = [](const ConstTensor& tensor) {
      return tensor.bytes() == 0 ? 0 : tensor.bytes() / size_t(tensor.shape[0]);
    };
    const size_t send_row = bytes_per_row(send), receive_row = bytes_per_row(receive);
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
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
    }));
  }

  void DoPostSend(ConstTensor data, Message to) override {
    senders_.try_emplace(to.peer, shared_, PairKey(rank(), to.peer)).first->second.Post(data);
  }
  void DoWaitSend(Message to) override { Finish(senders_.at(to.peer).Wait(to.n)); }

  void DoReceive(Tensor data, Message from) override {
    std::unique_ptr<Communicator>& pair = receivers_[from.peer];
    if (pair == nullptr) {
      auto made = Communicator::Create(shared_, PairKey(from.peer, rank()), 2, 1);
      Finish(made.status());
      pair = *std::move(made);
    }
    Finish(pair->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(data.data, data.bytes(), ncclUint8, 0, comm, stream);
    }));
  }

  void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from) override {
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
      const ncclResult_t sent = ncclSend(send.data, send.bytes(), ncclUint8, to.peer, comm, stream);
      if (sent != ncclSuccess) return sent;
      return ncclRecv(receive.data, receive.bytes(), ncclUint8, from.peer, comm, stream);
    }));
  }

  void Reduce(Tensor data, ncclRedOp_t op) {
    Finish(all_->Run([&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(data.data, data.data, size_t(data.elements()), NcclType(data.dtype), op,
                           comm, stream);
    }));
  }

  std::string PairKey(int from, int to) const {
    return absl::StrCat(all_->key(), "/", from, "-", to);
  }

  // A failure means that this rank cannot go on.
  void Finish(const absl::Status& status) {
    if (status.ok()) return;
    Abort();
    const auto kind = status.code() == absl::StatusCode::kInternal ? DeviceError::Kind::kDevice
                                                                   : DeviceError::Kind::kPeerLost;
    throw DeviceError(kind, absl::StrCat(OperationUnderWay(), ": ", status.message()));
  }

  Shared& shared_;
  const std::unique_ptr<Communicator> all_;
  std::map<int, Sender> senders_;  // By peer, as the next.
  std::map<int, std::unique_ptr<Communicator>> receivers_;
};

class NcclWorld final : public CollectiveWorld {
 public:
  NcclWorld(const NcclOptions& options, Rendezvous& rendezvous) : shared_{options, rendezvous} {}

  int rank() const override { return shared_.options.rank; }
  int size() const override { return shared_.options.size; }
  void Abort() override { shared_.aborted = true; }

  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    const int rank = RankIn(members);
    const std::string group = absl::StrCat("nccl/", name, "/", absl::StrJoin(members, ","));
    const std::string key = absl::StrCat(group, "/", made_[group]++);
    auto all = Communicator::Create(shared_, key, int(members.size()), rank);
    if (!all.ok()) {
      Abort();
      return absl::UnavailableError(absl::StrCat("group ", name, ": ", all.status().message()));
    }
    return std::make_unique<NcclCollective>(shared_, *std::move(all), name, members, rank);
  }

 private:
  Shared shared_;
  std::map<std::string, int> made_;  // Groups of each name and members so far.
};

}  // namespace

std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous) {
  CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size)
      << "rank " << options.rank << " of " << options.size;
  return std::make_unique<NcclWorld>(options, rendezvous);
}

}  // namespace trainyard
