// Communication among the ranks of one group. Every rank of the group calls the same collectives in
// the same order; messages between two ranks need to match between those two alone.
//
// Implementations: local (threads of one process, for tests), gloo (processes over TCP), nccl
// (processes with a GPU each). The first two take sums in rank order, which gives the same bits. A
// broken connection, a passed deadline or Abort() throws DeviceError, which trainer_main alone
// catches: a rank that lost a peer cannot go on. Its message names operation, number, group, rank
// and, where known, the lost peer. Not thread-safe: one thread a group, and the groups of a world
// (world.h) side by side.
//
// An operation is done when it returns; nccl's are ordered on the device instead: what the Exec
// that the group follows is given afterwards comes after them, but they may fail once they have
// returned, which Check() and later operations throw.
//
// Tensors are memory in C order; where a whole is made of the ranks' slices, these lie one after
// the other in rank order, and shapes are free as long as the elements fit.

#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/collective/activity.h"
#include "kernels/collective/flight_recorder.h"
#include "kernels/device/backend.h"
#include "kernels/device/device_error.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// The nth message, from 0, to or from a rank of the group.
struct Message {
  int peer = -1;
  int64_t n = 0;
};
// Name a posted message until it is waited for.
using SendHandle = Message;
using ReceiveHandle = Message;

// What one of `ranks` ranks sends in an operation, whatever the algorithm. `bytes` of the tensor,
// of the whole where it is made of slices: 2(n-1)/n of them for an all-reduce, (n-1)/n for
// all-gather, reduce-scatter, broadcast, and an all-to-all of equal slices; all for a message.
int64_t SentBytes(CollectiveOp op, int64_t bytes, int ranks);

// What one kind of operation has cost this rank so far.
struct OpCounts {
  int64_t calls = 0;
  int64_t bytes = 0;   // SentBytes; where the slices are unequal, what goes to others.
  double seconds = 0;  // Between call and return, or of the device.
};

class Collective {
 public:
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // In the group, as are all peers and roots below.
  int size() const { return int(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // World ranks, in group order.

  // From now on the tensors of operations lie in the memory of the device that `exec` runs on, and
  // what `exec` has been given by then is done before each. Both must last until the group no
  // longer follows them. Without it tensors lie in the host's memory.
  void Follow(const Backend& backend, const Exec& exec);
  // No longer; what follows another by now goes on to.
  void Unfollow(const Exec& exec);

  // Throws what has failed in any group of this rank's world. What was read from the device before,
  // and waited for, is good where it returns. Thread-safe.
  virtual void Check() {}

  // In place; f64, f32, bf16 (summed in f32), i64. Every rank ends with the same bits.
  void AllReduceSum(Tensor data);
  // In place, i64 and f64 only: for flags and slowest-rank times.
  void AllReduceMax(Tensor data);
  void Broadcast(Tensor data, int root);
  void Barrier();
  // all = every rank's `mine`. `mine` may be this rank's own slice of `all`.
  void AllGather(ConstTensor mine, Tensor all);
  // mine = the sum of all ranks' slices rank() of `all`; dtypes of AllReduceSum. `mine` may be this
  // rank's own slice of `all`; the rest of `all` is unchanged.
  void ReduceScatterSum(ConstTensor all, Tensor mine);
  // Sends block i of `send` to rank i, and receives block i of `receive` from it. A block is rows (of
  // dim 0): block i of `send` has send_rows[i] rows, zero among them, and rank i expects as many from
  // this rank. The tensors may be larger than their blocks; what lies behind the blocks is not
  // touched. The tensors do not overlap.
  void AllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                std::span<const int64_t> receive_rows);

  // Messages to other ranks of the group; between two ranks they arrive in order, and the sizes
  // agree. PostSend returns at once, and `data` must stay as it is until WaitSend, which every
  // message needs once: a group that ends before aborts its world. WaitSend may last until the
  // peer receives, so that it belongs where the memory is wanted back, not behind the send.
  SendHandle PostSend(ConstTensor data, int peer);
  void WaitSend(SendHandle message);
  void Receive(Tensor data, int peer);
  // Receive in two halves, so that a message may arrive while the rank computes. `data` is the
  // group's until WaitReceive, which every one needs once, those of one peer in their order. It may
  // be what a message to the peer is sent from, if the peer sends this one after it has that one;
  // then WaitSend comes before WaitReceive.
  ReceiveHandle PostReceive(Tensor data, int peer);
  void WaitReceive(ReceiveHandle message);
  // Both at once, as a ring's shift needs. A rank may send to itself if it also receives from
  // itself. No overlap.
  void SendReceive(ConstTensor send, int to, Tensor receive, int from);

  // From any thread: makes every running and later operation of all groups of this rank's world
  // throw, here, and soon in its peers, which notice.
  virtual void Abort() = 0;

  // From any thread.
  OpCounts counts(CollectiveOp op) const;
  const FlightRecorder& recorder() const { return *recorder_; }

  // An operation, and its number in the recorder.
  struct Begun {
    FlightRecord record;
    uint64_t number = 0;
  };

 protected:
  Collective(std::string name, std::vector<int> members, int rank);

  const Exec& followed() const {
    CHECK(exec_ != nullptr) << "group " << name_ << " follows no Exec";
    return *exec_;
  }
  int world_rank(int peer) const { return members_[size_t(peer)]; }
  // "all_gather 17 of group data, rank 1 of 4 (world rank 3)": begins the message of a DeviceError.
  // Only during an operation.
  std::string OperationUnderWay() const { return Describe(begun_.record); }
  std::string Describe(const FlightRecord& operation) const;

  // What is ordered on the device by the implementation.
  virtual bool is_on_device() const { return false; }
  const Begun& begun() const { return begun_; }  // What is being called.
  // That goes on when the call ends, whether or not it throws: the implementation calls Ended() for
  // it, once, sooner or later, from any thread. For others that is done when the call ends.
  void GoesOn() { goes_on_ = true; }
  // `took` is counted; none: the operation has failed.
  void Ended(const Begun& operation, std::optional<absl::Duration> took);
  // The device has come to an operation that waits for the peers, or is past it.
  void CountUnderWay(int change);

 private:
  friend class CollectiveWorld;
  struct Counters {
    std::atomic<int64_t> calls = 0, bytes = 0, nanoseconds = 0;
  };

  // What the public ones do, after they have checked arguments and noted the call.
  virtual void DoAllReduceSum(Tensor data) = 0;
  virtual void DoAllReduceMax(Tensor data) = 0;
  virtual void DoBroadcast(Tensor data, int root) = 0;
  virtual void DoBarrier() = 0;
  virtual void DoAllGather(ConstTensor mine, Tensor all) = 0;
  virtual void DoReduceScatterSum(ConstTensor all, Tensor mine) = 0;
  virtual void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                          std::span<const int64_t> receive_rows) = 0;
  virtual void DoPostSend(ConstTensor data, Message to) = 0;
  virtual void DoWaitSend(Message to) = 0;
  // Unless overridden: nothing, and all is left to DoReceive, which follows.
  virtual void DoPostReceive(Tensor data, Message from);
  virtual void DoReceive(Tensor data, Message from) = 0;
  virtual void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from);

  // Calls f, noted as `record`; `sent` goes to the counters.
  template <typename F>
  void Note(FlightRecord record, int64_t sent, F&& f);
  // The same for what SentBytes knows.
  template <typename F>
  void Note(const FlightRecord& record, F&& f) {
    Note(record, SentBytes(record.op, record.bytes, size()), std::forward<F>(f));
  }
  void CheckPeer(int peer) const;
  void SettleDevice() const;  // Of what is followed.

  const std::string name_;
  const std::vector<int> members_;
  const int rank_;
  int64_t collectives_ = 0;                                  // Begun so far.
  std::vector<int64_t> sent_, received_;                     // Messages by peer.
  std::vector<std::pair<Message, Tensor>> posted_receives_;  // Not waited for, in their order.
  Begun begun_;
  bool goes_on_ = false;              // What begun_ says.
  const Backend* backend_ = nullptr;  // What it follows.
  const Exec* exec_ = nullptr;
  GroupActivity* activity_ = nullptr;  // Of the world; null where nobody asked.
  std::array<Counters, kCollectiveOps> counters_;
  const std::shared_ptr<FlightRecorder> recorder_;  // GroupActivity keeps it beyond the group.
};

}  // namespace trainyard
