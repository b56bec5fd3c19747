// The audit log: who changed what, from where, and with what outcome. A change of a job is
// recorded in the transaction of the change (WriteBatch::audit). This class records all other
// calls.

#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "controller/access/principal.h"
#include "controller/store/store.h"
#include "security/audit_entry.h"

namespace trainyard::controller {

// Thread-safe.
class Audit {
 public:
  Audit(const Clock& clock, Store& store) : clock_(clock), store_(store) {}  // Outlive the log.

  // The entry of a call that has succeeded as far as is known. Write sets the outcome.
  AuditEntry Entry(const Principal& caller, const std::string& method,
                   const std::string& peer) const;

  // Writes an entry. `done` gets the outcome of writing, once the entry is durable; `done` must be
  // quick. Null: nobody waits, and the entry is left out if too many others wait to be written.
  //
  // Refusals, and entries that nobody waits for, cost their caller nothing, and a caller could push
  // all history out of the log with them. So each caller gets kEachMinute such entries in a minute.
  // The rest become one entry that counts them. For an entry that is only counted, `done` runs at
  // once.
  void Write(AuditEntry entry, const absl::Status& outcome, WriteDone done);
  static constexpr int kEachMinute = 20;
  // Writes the entries that count others: for the callers whose minute is over, or for all callers.
  // Call this every second.
  void WriteCounts(bool all = false);

  // Records that a change is about to be made, with the outcome STARTED. For changes that leave no
  // trace themselves: the record is durable before the change. Waits for the disk.
  absl::Status WriteIntent(AuditEntry entry);

  Store& store() const { return store_; }

 private:
  // The entries of one caller in the current minute.
  struct Minute {
    absl::Duration begin;  // A reading of clock_.Monotonic().
    int written = 0;
    uint64_t counted = 0;
    AuditEntry last = {};  // The last entry that was counted.
  };
  // Whether the entry is only counted.
  bool Counted(const AuditEntry& entry);
  void Put(AuditEntry entry, WriteDone done);

  const Clock& clock_;
  Store& store_;
  Mutex mutex_;
  std::map<std::string, Minute> minutes_ ABSL_GUARDED_BY(mutex_);  // By caller and credential.
};

}  // namespace trainyard::controller
