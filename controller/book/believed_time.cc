#include "controller/book/believed_time.h"

#include "common/log.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kLeap = absl::Minutes(1);
constexpr absl::Duration kSettles = absl::Minutes(10);

absl::Duration OffsetOf(const Clock& clock) {
  return clock.Now() - absl::UnixEpoch() - clock.Monotonic();
}

bool Leaps(absl::Duration from, absl::Duration to) { return absl::AbsDuration(to - from) > kLeap; }

}  // namespace

BelievedTime::BelievedTime(const Clock& clock) : clock_(clock), offset_(OffsetOf(clock)) {}

absl::Time BelievedTime::Now() {
  const absl::Duration monotonic = clock_.Monotonic(), offset = OffsetOf(clock_);
  const auto believed = [&] { return absl::UnixEpoch() + monotonic + offset_; };
  if (!Leaps(offset_, offset)) {
    offset_ = offset;
    doubt_.reset();
  } else if (!doubt_ || Leaps(doubt_->offset, offset)) {
    doubt_ = {offset, monotonic};
    LogWarning("clock_leapt", {{"from", absl::FormatTime(believed())},
                               {"to", absl::FormatTime(absl::UnixEpoch() + monotonic + offset)},
                               {"effect", "new jobs are dated by the earlier time"},
                               {"believed_after", absl::FormatDuration(kSettles)}});
  } else if (monotonic - doubt_->since >= kSettles) {
    offset_ = offset;
    doubt_.reset();
    LogWarning("clock_believed", {{"time", absl::FormatTime(believed())}});
  }
  return believed();
}

}  // namespace trainyard::controller
