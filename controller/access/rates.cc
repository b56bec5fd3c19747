#include "controller/access/rates.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace trainyard::controller {
namespace {

// A full bucket carries no information and is removed.
constexpr absl::Duration kSweepEvery = absl::Seconds(int(kCallsAtOnce / kCallsPerSecond));

}  // namespace

void Rates::Fill(Bucket& bucket, absl::Duration now) const {
  const double seconds = absl::ToDoubleSeconds(now - bucket.filled);
  bucket.tokens = std::min(kCallsAtOnce, bucket.tokens + seconds * kCallsPerSecond);
  bucket.filled = now;
}

absl::Status Rates::Take(const std::string& caller, double cost) {
  const absl::Duration now = clock_.Monotonic();
  const MutexLock lock(mutex_);
  if (now - swept_ > kSweepEvery) {
    swept_ = now;
    for (auto it = buckets_.begin(); it != buckets_.end();) {
      Fill(it->second, now);
      it = it->second.tokens >= kCallsAtOnce ? buckets_.erase(it) : std::next(it);
    }
  }
  Bucket& bucket =
      buckets_.try_emplace(caller, Bucket{.tokens = kCallsAtOnce, .filled = now}).first->second;
  Fill(bucket, now);
  if (bucket.tokens < cost) {
    return absl::ResourceExhaustedError(
        absl::StrCat(caller, " calls more than ", kCallsPerSecond / cost, " times a second; wait"));
  }
  bucket.tokens -= cost;
  return absl::OkStatus();
}

size_t Rates::size() const {
  const MutexLock lock(mutex_);
  return buckets_.size();
}

}  // namespace trainyard::controller
