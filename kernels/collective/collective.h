// Communication among the ranks of one group. Every rank of the group must call the same
// collectives in the same order. Messages between two ranks must match between these two only.
//
// Implementations: local (threads of one process, for tests), gloo (processes over TCP), nccl
// (processes with a GPU each). The first two sum in rank order, so they give the same bits.
//
// A broken connection, a passed deadline or Abort() throws DeviceError. Only trainer_main catches
// it: a rank that lost a peer cannot continue. The message names operation, number, group, rank
// and, if known, the lost peer. Not thread-safe: one thread uses a group, but the groups of a world
// (world.h) may be used at the same time.
//
// An operation is done when it returns. nccl's operations are ordered on the device instead: work
// given later to the Exec that the group follows runs after them. Such an operation may fail after
// it has returned; Check() and later operations then throw.
//
// Tensors are memory in C order. If a whole consists of the ranks' slices, these lie one after the
// other in rank order. Shapes are free as long as the elements fit.

#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective/activity.h"
#include "kernels/collective/flight_recorder.h"
#include "kernels/device/backend.h"
#include "kernels/device/device_error.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// Message n, from 0, to or from a rank of the group.
struct Message {
  int peer = -1;
  int64_t n = 0;
};
// Names a posted message until it has been waited for.
using SendHandle = Message;
using ReceiveHandle = Message;

// Two different ranks of a group, of which one sends to the other.
struct RankPair {
  int from = 0;
  int to = 0;
  auto operator<=>(const RankPair&) const = default;
};
// The pairs that one rank of a group is part of.
struct Connections {
  std::set<RankPair> messages = {};   // Of PostSend, PostReceive and Receive.
  std::set<RankPair> exchanges = {};  // Of SendReceive, and of AllToAll, which needs every pair.
};

// The bytes that one of `ranks` ranks sends in an operation, whatever the algorithm. `bytes` are
// those of the tensor, or of the whole if it consists of slices. With n ranks:
//
//   2 (n-1)/n bytes   all-reduce
//   (n-1)/n bytes     all-gather, reduce-scatter, broadcast, all-to-all of equal slices
//   bytes             a message
int64_t SentBytes(CollectiveOp op, int64_t bytes, int ranks);

// The cost of one kind of operation for this rank so far.
struct OpCounts {
  int64_t calls = 0;
  int64_t bytes = 0;   // SentBytes; for unequal slices, the bytes sent to others.
  double seconds = 0;  // Between call and return, or on the device.
};

class Collective {
 public:
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // In the group, as all peers and roots below.
  int size() const { return int(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // World ranks, in group order.

  // From now on, the tensors of operations are in the memory of `exec`'s device, and work that
  // `exec` was given before an operation is done before it. Both arguments must live until
  // Unfollow. A group that follows no Exec takes tensors in the host's memory.
  void Follow(const Backend& backend, const Exec& exec);
  // Stops following `exec`. Does nothing if the group follows another Exec by now.
  void Unfollow(const Exec& exec);

  // Connects this rank with the ranks that it will exchange data with, so that no later operation
  // has to. nccl needs this, because connecting may wait for work on the device that itself waits
  // for another rank (nccl.h). The other implementations only remember the pairs. Afterwards, an
  // operation along any other pair is a programmer's error.
  //
  // All ranks of the group must call this, at most once, while no group of their world is in use.
  // Both ranks of a pair must name it, and a rank without pairs must make the call, too. The ranks
  // that share several groups must connect these in the same order. The group need not follow an
  // Exec yet. UNAVAILABLE: the world was aborted, or a member was lost or has failed. INTERNAL:
  // this rank's device has failed.
  absl::Status Connect(const Connections& connections);

  // Throws if anything has failed in any group of this rank's world. If it returns, data that were
  // read from the device and waited for before are good. Thread-safe.
  virtual void Check() {}

  // In place; f64, f32, bf16 (summed in f32), i64. Every rank gets the same bits.
  void AllReduceSum(Tensor data);
  // In place; only i64, f64 and f32: for flags, the time of the slowest rank, and greatest values.
  void AllReduceMax(Tensor data);
  void Broadcast(Tensor data, int root);
  void Barrier();
  // all = every rank's `mine`, in rank order. `mine` may be this rank's slice of `all`.
  void AllGather(ConstTensor mine, Tensor all);
  // mine = the sum over all ranks of slice rank() of `all`. dtypes as in AllReduceSum. `mine` may
  // be this rank's slice of `all`; the rest of `all` is unchanged.
  void ReduceScatterSum(ConstTensor all, Tensor mine);
  // Sends block i of `send` to rank i, and receives block i of `receive` from rank i. Blocks are
  // rows (of dim 0) and may be empty. Block i of `send` has send_rows[i] rows, and rank i must
  // expect this number from this rank. The tensors may be larger than their blocks; the rest is not
  // changed. The tensors must not overlap.
  void AllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                std::span<const int64_t> receive_rows);

  // Sends a message to another rank of the group. Messages between two ranks arrive in order, and
  // their sizes must agree. PostSend returns at once. `data` must not change until WaitSend, which
  // every message needs exactly once: a group that is destroyed before aborts its world. WaitSend
  // may block until the peer receives, so call it when the memory is needed again, not directly
  // after the send.
  SendHandle PostSend(ConstTensor data, int peer);
  void WaitSend(SendHandle message);
  void Receive(Tensor data, int peer);
  // Receive in two halves, so that a message may arrive while the rank computes. `data` belongs to
  // the group until WaitReceive, which every message needs exactly once, for each peer in order.
  // `data` may also be the source of a message to the peer, if the peer sends its own message after
  // it has received that one. Then WaitSend must come before WaitReceive.
  ReceiveHandle PostReceive(Tensor data, int peer);
  void WaitReceive(ReceiveHandle message);
  // Sends and receives at the same time, as the shift of a ring needs. A rank may send to itself if
  // it also receives from itself. The tensors must not overlap.
  void SendReceive(ConstTensor send, int to, Tensor receive, int from);

  // Makes every running and later operation of all groups of this rank's world throw. The peers
  // notice soon and throw, too. May be called from any thread.
  virtual void Abort() = 0;

  // May be called from any thread.
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
  // Valid only during an operation.
  std::string OperationUnderWay() const { return Describe(begun_.record); }
  std::string Describe(const FlightRecord& operation) const;

  // Whether the implementation orders operations on the device.
  virtual bool is_on_device() const { return false; }
  const Begun& begun() const { return begun_; }  // The operation being called.
  // Called during an operation that continues after its call has ended, whether the call throws or
  // not. The implementation must then call Ended() once, from any thread. All other operations end
  // with their call.
  void GoesOn() { goes_on_ = true; }
  // Ends an operation. `took` is added to the counts; nullopt: the operation failed.
  void Ended(const Begun& operation, std::optional<absl::Duration> took);
  // Counts operations for which the device waits for the peers: +1 when the device reaches one, -1
  // when it has passed.
  void CountUnderWay(int change);

 private:
  friend class CollectiveWorld;
  struct Counters {
    std::atomic<int64_t> calls = 0, bytes = 0, nanoseconds = 0;
  };

  // By default does nothing.
  virtual absl::Status DoConnect(const Connections& connections);
  // The implementations of the public functions, which have checked the arguments and noted the
  // call.
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
  // By default does nothing, and DoReceive, which follows, does all.
  virtual void DoPostReceive(Tensor data, Message from);
  virtual void DoReceive(Tensor data, Message from) = 0;
  virtual void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from);

  // Calls f, which is noted as `record`. `sent` is added to the counted bytes.
  template <typename F>
  void Note(FlightRecord record, int64_t sent, F&& f);
  // The same if SentBytes has the number of bytes.
  template <typename F>
  void Note(const FlightRecord& record, F&& f) {
    Note(record, SentBytes(record.op, record.bytes, size()), std::forward<F>(f));
  }
  void CheckPeer(int peer) const;
  // CHECKs that Connect, if it was called, was told of a pair.
  void CheckConnected(std::set<RankPair> Connections::*pairs, RankPair pair) const;
  void SettleDevice() const;  // Waits until the followed Exec is done.

  const std::string name_;
  const std::vector<int> members_;
  const int rank_;
  std::optional<Connections> connections_;                   // Those of Connect.
  int64_t collectives_ = 0;                                  // Number begun so far.
  std::vector<int64_t> sent_, received_;                     // Number of messages, by peer.
  std::vector<std::pair<Message, Tensor>> posted_receives_;  // Not yet waited for, in order.
  Begun begun_;
  bool goes_on_ = false;              // begun_ continues after its call.
  const Backend* backend_ = nullptr;  // The followed Exec's; null: follows nothing.
  const Exec* exec_ = nullptr;
  GroupActivity* activity_ = nullptr;  // The world's; null: not counted.
  std::array<Counters, kCollectiveOps> counters_;
  const std::shared_ptr<FlightRecorder> recorder_;  // GroupActivity keeps it longer than the group.
};

}  // namespace trainyard
