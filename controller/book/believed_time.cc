#include "controller/book/believed_time.h"

#include <ctime>
#include <utility>

#include "common/log.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kLeap = absl::Minutes(1);
constexpr absl::Duration kSettles = absl::Minutes(10);

absl::Duration Read(clockid_t id) {
  timespec time = {};
  (void)::clock_gettime(id, &time);
  return absl::DurationFromTimespec(time);
}

bool Leaps(absl::Duration from, absl::Duration to) { return absl::AbsDuration(to - from) > kLeap; }

}  // namespace

// Whole seconds, because the two readings are not of one moment.
absl::Duration TimeAsleep() {
  return absl::Trunc(Read(CLOCK_BOOTTIME) - Read(CLOCK_MONOTONIC), absl::Seconds(1));
}

BelievedTime::BelievedTime(const Clock& clock, std::function<absl::Duration()> asleep)
    : clock_(clock),
      asleep_(std::move(asleep)),
      offset_(clock.Now() - absl::UnixEpoch() - Elapsed()) {}

absl::Time BelievedTime::Now() const {
  const MutexLock lock(mutex_);
  const absl::Duration elapsed = Elapsed();
  const absl::Duration offset = clock_.Now() - absl::UnixEpoch() - elapsed;
  const auto by = [&](absl::Duration an_offset) { return absl::UnixEpoch() + elapsed + an_offset; };
  if (!Leaps(offset_, offset)) {
    offset_ = offset;
    doubt_.reset();
  } else if (!doubt_ || Leaps(doubt_->offset, offset)) {
    doubt_ = {offset, elapsed};
    LogWarning("clock_leapt",
               {{"from", absl::FormatTime(by(offset_))},
                {"to", absl::FormatTime(by(offset))},
                {"effect", "new jobs are dated, and grants end, by the earlier time"},
                {"believed_after", absl::FormatDuration(kSettles)}});
  } else if (elapsed - doubt_->since >= kSettles) {
    offset_ = offset;
    doubt_.reset();
    LogWarning("clock_believed", {{"time", absl::FormatTime(by(offset_))}});
  }
  return by(offset_);
}

}  // namespace trainyard::controller
