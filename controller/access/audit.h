// The audit log: who changed what, from where, and with what outcome. A change of a job is
// recorded in the transaction of the change (WriteBatch::audit); the rest goes through here.

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

  // Of a call that has succeeded, as far as is known.
  AuditEntry Entry(const Principal& caller, const std::string& method,
                   const std::string& peer) const;

  // `done` gets the outcome of writing, once the entry is durable; it must be quick. Null: nobody
  // waits, and where too much waits to be written the entry is left out.
  //
  // Refusals, and what nobody waits for, cost their caller nothing: of one caller's, kEachMinute
  // are written in a minute, and the others become one entry that counts them. Or history would be
  // pushed out of the log. `done` runs at once for those.
  void Write(AuditEntry entry, const absl::Status& outcome, WriteDone done);
  static constexpr int kEachMinute = 20;
  // Writes the entries that count others, of callers whose minute is over; or of all. Call every
  // second.
  void WriteCounts(bool all = false);

  // Of a change that leaves no trace itself: that it is about to be made is durable before it is.
  // Waits for the disk.
  absl::Status WriteIntent(AuditEntry entry);

  Store& store() const { return store_; }

 private:
  // Of one caller, in this minute.
  struct Minute {
    absl::Duration begin;  // A reading of clock_.Monotonic().
    int written = 0;
    uint64_t counted = 0;
    AuditEntry last = {};  // Of those that were counted.
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
