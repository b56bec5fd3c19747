#include "worker/daemon/outbox.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/log.h"

namespace trainyard {
namespace {

constexpr size_t kMaxNotices = 1000;
constexpr size_t kMaxSentLogs = 64;  // Half a minute of one rank, at most 2 MiB.
// Thousands may be dropped. The first is logged, and then one in this many.
constexpr uint64_t kDropsPerLogLine = 10'000;
constexpr char kMayRepeat[] =
    "(the connection to the controller broke: some of the next lines may be there twice)";

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
    const Notice& notice = std::get<Notice>(outgoing.message);
    if (const auto* log = std::get_if<LogReport>(&notice)) Sent(*log);
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
  std::erase_if(notices_,
                [](const Notice& notice) { return !std::holds_alternative<LogReport>(notice); });
  std::set<std::tuple<std::string, uint64_t, uint32_t>> told;  // Ranks that have the line.
  for (auto sent = sent_logs_.begin(); sent != sent_logs_.end(); ++sent) {
    const LogRecord first = sent->log.lines.front();
    if (!told.emplace(sent->log.job_id, first.epoch, first.rank).second) continue;
    if (first.text == kMayRepeat) continue;
    sent->log.lines.insert(sent->log.lines.begin(),
                           {first.time, first.epoch, first.rank, kMayRepeat});
  }
  while (!sent_logs_.empty()) {
    notices_.push_front(std::move(sent_logs_.back().log));
    sent_logs_.pop_back();
  }
  while (notices_.size() > kMaxNotices) DropOldestLog();
  changed_.NotifyAll();
}

void Outbox::Sent(const LogReport& log) {
  if (log.lines.empty()) return;
  const uint64_t next = next_ < reports_.size() ? reports_[next_].sequence : last_sequence_ + 1;
  sent_logs_.push_back({next, log});
  if (sent_logs_.size() > kMaxSentLogs) sent_logs_.pop_front();
}

void Outbox::Acknowledge(uint64_t sequence) {
  const MutexLock lock(mutex_);
  while (!reports_.empty() && reports_.front().sequence <= sequence) {
    reports_.pop_front();
    if (next_ > 0) --next_;
  }
  while (!sent_logs_.empty() && sent_logs_.front().followed_by <= sequence) sent_logs_.pop_front();
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
