#include "worker/daemon/outbox.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/log.h"

namespace trainyard {
namespace {

constexpr size_t kMaxNotices = 1000;
// Thousands may be dropped. The first is logged, and then one in this many.
constexpr uint64_t kDropsPerLogLine = 10'000;

}  // namespace

uint64_t Outbox::Add(Report report) {
  const MutexLock lock(mutex_);
  reports_.push_back({++last_sequence_, std::move(report)});
  if (reports_.size() > max_reports_) DropOldestStep();
  changed_.NotifyAll();
  return last_sequence_;
}

void Outbox::DropOldestStep() {
  const auto it = std::find_if(reports_.begin(), reports_.end(), [](const Numbered& n) {
    return std::holds_alternative<StepReport>(n.report);
  });
  if (it == reports_.end()) return;  // Only statuses and checkpoints are left; they are few.
  if (size_t(it - reports_.begin()) < next_) --next_;
  reports_.erase(it);
  if (dropped_.steps++ % kDropsPerLogLine == 0) {
    LogWarning("steps_dropped", {{"total", dropped_.steps}, {"bound", max_reports_}});
  }
}

void Outbox::Add(Notice notice) {
  const MutexLock lock(mutex_);
  notices_.push_back(std::move(notice));
  if (notices_.size() > kMaxNotices) DropOldestLog();
  changed_.NotifyAll();
}

void Outbox::DropOldestLog() {
  const auto it = std::find_if(notices_.begin(), notices_.end(), [](const Notice& notice) {
    return std::holds_alternative<LogReport>(notice);
  });
  if (it == notices_.end()) return;  // Only the other kinds are left; they are few.
  const uint64_t before = dropped_.log_lines;
  dropped_.log_lines += std::get<LogReport>(*it).lines.size();
  notices_.erase(it);
  if (before == 0 || before / kDropsPerLogLine != dropped_.log_lines / kDropsPerLogLine) {
    LogWarning("log_lines_dropped", {{"total", dropped_.log_lines}, {"bound", kMaxNotices}});
  }
}

std::optional<Outgoing> Outbox::Next(absl::Duration timeout) {
  MutexLock lock(mutex_);
  const absl::Duration deadline = RealClock().Monotonic() + timeout;
  while (!woken_ && notices_.empty() && next_ == reports_.size() &&
         changed_.WaitUntil(mutex_, deadline)) {
  }
  woken_ = false;
  if (!notices_.empty()) {  // First, because a rendezvous may wait.
    Outgoing outgoing{0, std::move(notices_.front())};
    notices_.pop_front();
    return outgoing;
  }
  if (next_ == reports_.size()) return std::nullopt;
  const Numbered& numbered = reports_[next_++];
  return Outgoing{numbered.sequence, numbered.report};
}

void Outbox::Wake() {
  const MutexLock lock(mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void Outbox::Rewind() {
  const MutexLock lock(mutex_);
  next_ = 0;
  notices_.clear();
  changed_.NotifyAll();
}

void Outbox::Acknowledge(uint64_t sequence) {
  const MutexLock lock(mutex_);
  while (!reports_.empty() && reports_.front().sequence <= sequence) {
    reports_.pop_front();
    if (next_ > 0) --next_;
  }
}

size_t Outbox::num_reports() const {
  const MutexLock lock(mutex_);
  return reports_.size();
}

Outbox::Dropped Outbox::dropped() const {
  const MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace trainyard
