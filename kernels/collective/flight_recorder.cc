#include "kernels/collective/flight_recorder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard {

const char* Name(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduceSum:
      return "all_reduce_sum";
    case CollectiveOp::kAllReduceMax:
      return "all_reduce_max";
    case CollectiveOp::kBroadcast:
      return "broadcast";
    case CollectiveOp::kBarrier:
      return "barrier";
    case CollectiveOp::kAllGather:
      return "all_gather";
    case CollectiveOp::kReduceScatterSum:
      return "reduce_scatter_sum";
    case CollectiveOp::kAllToAll:
      return "all_to_all";
    case CollectiveOp::kSend:
      return "send";
    case CollectiveOp::kWaitSend:
      return "wait_send";
    case CollectiveOp::kReceive:
      return "receive";
    case CollectiveOp::kSendReceive:
      return "send_receive";
  }
  return "?";
}

std::string ToString(const FlightRecord& record) {
  std::string text = absl::StrCat(Name(record.op), " ", record.sequence);
  if (record.to >= 0) absl::StrAppend(&text, " to ", record.to);
  if (record.from >= 0) absl::StrAppend(&text, " from ", record.from);
  absl::StrAppend(&text, ", ", record.bytes, " bytes, entered ",
                  absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", record.entered, absl::UTCTimeZone()),
                  ", ");
  if (record.left == absl::InfiniteFuture()) return text + "not left";
  return absl::StrCat(text, "left after ", absl::FormatDuration(record.left - record.entered));
}

uint64_t FlightRecorder::Enter(const FlightRecord& record) {
  const MutexLock lock(mutex_);
  ring_[entered_ % kCapacity] = record;
  return entered_++;
}

void FlightRecorder::Leave(uint64_t number, absl::Time when) {
  const MutexLock lock(mutex_);
  if (entered_ - number <= kCapacity) ring_[number % kCapacity].left = when;
}

std::vector<FlightRecord> FlightRecorder::Records() const {
  const MutexLock lock(mutex_);
  std::vector<FlightRecord> records;
  for (uint64_t i = entered_ - std::min<uint64_t>(entered_, kCapacity); i < entered_; ++i) {
    records.push_back(ring_[i % kCapacity]);
  }
  return records;
}

}  // namespace trainyard
