// Follows the hashes of the audit log's entries, oldest first, and says what is not as it was
// written. Whoever can write the store can also write all hashes anew: that is found by an anchor
// alone, an entry that somebody has noted elsewhere.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "security/audit_entry.h"

namespace trainyard::cli {

// Number 0: none.
struct AuditAnchor {
  uint64_t number = 0;
  std::string hash = {};
};

class AuditChain {
 public:
  // `kept`: how many entries a controller keeps; older ones may be gone.
  AuditChain(AuditAnchor anchor, uint64_t kept) : anchor_(std::move(anchor)), kept_(kept) {}

  // The entries after this one are wanted: the one before the anchor, which the anchor's hash
  // covers, or all.
  uint64_t after() const { return anchor_.number < 2 ? 0 : anchor_.number - 2; }

  // Both: DATA_LOSS where the log has been changed, or is damaged.
  absl::Status Add(const AuditEntry& entry);
  // Once no more entries come.
  absl::Status Finish() const;

  std::string Range() const;  // Of the entries, for people.
  // What cannot be told of the oldest entry, where those before it are no longer kept; else empty.
  std::string Doubt() const;
  std::string Head() const;  // The newest, as an anchor.
  uint64_t newest() const { return newest_ ? newest_->number : 0; }

 private:
  const AuditAnchor anchor_;
  const uint64_t kept_;
  uint64_t oldest_ = 0;
  std::optional<AuditEntry> newest_;
};

}  // namespace trainyard::cli
