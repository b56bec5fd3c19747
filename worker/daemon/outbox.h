// What waits to be sent to the controller. Reports are numbered and stay until acknowledged; after
// a reconnect they are sent again from the oldest. Notices go once, to the connection that is.
//
// Bounds: 400,000 reports, about 100 MB: ten minutes without a controller at 660 steps a second
// over all ranks of the machine. Beyond it the oldest steps are dropped, counted and logged;
// statuses and checkpoints stay. 1,000 notices; beyond it the oldest logs go likewise, while
// rendezvous and draining, for which somebody waits, stay.

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

  uint64_t Add(Report report);  // Returns its sequence.
  void Add(Notice notice);

  // The next to send, waiting for one until `timeout` is over or Wake is called.
  std::optional<Outgoing> Next(absl::Duration timeout);
  void Wake();

  // A new connection: notices of the last one are gone, all reports are to be sent.
  void Rewind();
  // Everything up to `sequence` is durable.
  void Acknowledge(uint64_t sequence);

  size_t num_reports() const;
  // What the bounds have cost so far.
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

  void DropOldestStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldestLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_reports_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Numbered> reports_
      ABSL_GUARDED_BY(mutex_);  // By sequence. Those before next_ have been sent.
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trainyard
