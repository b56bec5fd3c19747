// The last operations of one group, for the report of a hang or of a lost peer: which collective,
// its number, its peers, when it began and whether it ended. Ranks that stand at different numbers
// of the same group have diverged.

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

// "all_reduce_sum" and so on: the names in messages and metrics.
const char* Name(CollectiveOp op);

struct FlightRecord {
  CollectiveOp op = CollectiveOp::kBarrier;
  // Collectives of a group are counted together from 1, alike on all ranks. Messages are counted by
  // pair: the nth send to a rank is that rank's nth receive from this one.
  int64_t sequence = 0;
  int64_t bytes = 0;       // Of this rank's tensor; of the larger one, where there are two.
  int to = -1, from = -1;  // World ranks, where the operation has a peer or a root.
  absl::Time entered = absl::InfinitePast();
  absl::Time left = absl::InfiniteFuture();  // Until it ends, and for good if it fails.
};

// "all_gather 17, 4096 bytes, entered 2026-01-02T03:04:05.678Z, left after 1.2ms".
std::string ToString(const FlightRecord& record);

// A fixed ring; never allocates after construction. Thread-safe.
class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 256;

  // `group` says whose operations these are: "group data, rank 1 of 4 (world rank 3)".
  explicit FlightRecorder(std::string group) : group_(std::move(group)) {}

  const std::string& group() const { return group_; }

  // Returns the operation's number, from 0, for its end.
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
