// The last operations of one group, for the report of a hang or of a lost peer: which collective,
// its number, its peers, when it began and whether it ended. If ranks are at different numbers of
// the same group, they have diverged.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/mutex.h"

namespace trainyard {

enum class CollectiveOp : uint8_t {
  kAllReduceSum,
  kAllReduceMax,
  kBroadcast,
  kBarrier,
  kAllGather,
  kReduceScatterSum,
  kAllToAll,
  kSend,
  kWaitSend,
  kReceive,
  kSendReceive,
};
constexpr size_t kCollectiveOps = 11;

// For example "all_reduce_sum": the names in messages and metrics.
const char* Name(CollectiveOp op);

struct FlightRecord {
  CollectiveOp op = CollectiveOp::kBarrier;
  // Collectives of a group are counted together from 1, the same on all ranks. Messages are counted
  // by pair: send n to a rank is that rank's receive n from this one.
  int64_t sequence = 0;
  int64_t bytes = 0;       // This rank's tensor, or the larger one if there are two.
  int to = -1, from = -1;  // World ranks, if the operation has a peer or a root.
  absl::Time entered = absl::InfinitePast();
  absl::Time left = absl::InfiniteFuture();  // Infinite until the operation ends, or if it failed.
};

// For example "all_gather 17, 4096 bytes, entered 2026-01-02T03:04:05.678Z, left after 1.2ms".
std::string ToString(const FlightRecord& record);

// A ring of fixed size. Allocates nothing after construction. Thread-safe.
class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 256;

  // `group` names the owner of the operations: "group data, rank 1 of 4 (world rank 3)".
  explicit FlightRecorder(std::string group) : group_(std::move(group)) {}

  const std::string& group() const { return group_; }

  // Notes the start of an operation. Returns its number, from 0, for Leave.
  uint64_t Enter(const FlightRecord& record);
  void Leave(uint64_t number, absl::Time when);

  std::vector<FlightRecord> Records() const;  // Oldest first.

 private:
  const std::string group_;
  mutable Mutex mutex_;
  uint64_t entered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<FlightRecord, kCapacity> ring_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
