// The messages that wait to be sent to the controller. Reports are numbered and stay until they are
// acknowledged. After a reconnect they are sent again from the oldest. Notices are sent once, to
// the present connection. Logs alone outlive it: lines that were sent and that no acknowledged
// report followed may not have arrived, and are sent again, behind a line that says so.
//
// Limits: 400,000 reports, about 100 MB, which is ten minutes without a controller at 660 steps a
// second over all ranks of the machine. Above this the oldest steps are dropped, counted and
// logged; statuses and checkpoints stay. 1,000 notices: above this the oldest logs are dropped in
// the same way; rendezvous and draining notices stay, because somebody waits for them.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "common/mutex.h"
#include "worker/daemon/reports.h"

namespace trainyard {

// Thread-safe.
class Outbox {
 public:
  explicit Outbox(size_t max_reports = 400'000) : max_reports_(max_reports) {}

  uint64_t Add(Report report);  // Returns the report's sequence number.
  void Add(Notice notice);

  // Returns the next message to send. Waits for one until `timeout` is over or Wake is called.
  std::optional<Outgoing> Next(absl::Duration timeout);
  void Wake();

  // A new connection has begun. Drops the notices of the last one but logs, and sends all reports
  // again, and the logs that may not have arrived.
  void Rewind();
  // The controller has stored everything up to `sequence`.
  void Acknowledge(uint64_t sequence);

  size_t num_reports() const;
  // Counts what the limits have dropped so far.
  struct Dropped {
    uint64_t steps = 0;
    uint64_t log_lines = 0;
  };
  Dropped dropped() const;

 private:
  struct Numbered {
    uint64_t sequence;
    Report report;
  };

  struct SentLog {
    uint64_t followed_by;  // The report whose acknowledgement says that this log has arrived.
    LogReport log;
  };

  void DropOldestStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldestLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sent(const LogReport& log) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_reports_;
  mutable Mutex mutex_;
  CondVar changed_;
  // By sequence. Those before next_ have been sent.
  std::deque<Numbered> reports_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  std::deque<SentLog> sent_logs_ ABSL_GUARDED_BY(mutex_);  // The newest 64.
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trainyard
