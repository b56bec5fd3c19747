// Checks the hashes of the audit log's entries, oldest first, and reports what has been changed
// since it was written. Whoever can write the store can also compute all hashes anew. Only an
// anchor reveals that: an entry that somebody has noted elsewhere.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "security/audit_entry.h"

namespace trainyard::cli {

// Number 0: there is no anchor.
struct AuditAnchor {
  uint64_t number = 0;
  std::string hash = {};
};

class AuditChain {
 public:
  // `kept`: how many entries a controller keeps. Older entries may be gone.
  AuditChain(AuditAnchor anchor, uint64_t kept) : anchor_(std::move(anchor)), kept_(kept) {}

  // The entries after this one are needed: from the one before the anchor, because the anchor's
  // hash covers it, or all of them.
  uint64_t after() const { return anchor_.number < 2 ? 0 : anchor_.number - 2; }

  // Takes the next entry. DATA_LOSS: the log has been changed or is damaged.
  absl::Status Add(const AuditEntry& entry);
  // Call this when there are no more entries. DATA_LOSS: as for Add.
  absl::Status Finish() const;

  std::string Range() const;  // The checked entries, for people.
  // What cannot be verified about the oldest entry because the entries before it are gone; empty if
  // nothing.
  std::string Doubt() const;
  std::string Head() const;  // The newest entry, as an anchor.
  uint64_t newest() const { return newest_ ? newest_->number : 0; }

 private:
  const AuditAnchor anchor_;
  const uint64_t kept_;
  uint64_t oldest_ = 0;
  std::optional<AuditEntry> newest_;
};

}  // namespace trainyard::cli
