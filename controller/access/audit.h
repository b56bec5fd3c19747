// The audit log: who changed what, from where, and with what outcome. A change of a job is
// recorded in the transaction of the change (WriteBatch::audit); the rest goes through here.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
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
  void Write(AuditEntry entry, const absl::Status& outcome, WriteDone done);

  Store& store() const { return store_; }

 private:
  const Clock& clock_;
  Store& store_;
};

}  // namespace trainyard::controller
