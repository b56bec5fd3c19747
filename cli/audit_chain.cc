#include "cli/audit_chain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::cli {
namespace {

absl::Status Broken(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the audit log cannot be relied on: ", what));
}

std::string Entries(uint64_t first, uint64_t last) {
  return first == last ? absl::StrCat("entry ", first, " is missing")
                       : absl::StrCat("entries ", first, " to ", last, " are missing");
}

}  // namespace

absl::Status AuditChain::Add(const AuditEntry& entry) {
  if (newest_ && entry.number != newest_->number + 1) {
    return Broken(Entries(newest_->number + 1, std::max(newest_->number + 1, entry.number - 1)));
  }
  // The hash of the first entry here covers the hash of the entry before, which is not available,
  // unless this is the log's first entry.
  const bool covered = newest_ || entry.number == 1;
  if (covered && entry.hash != ChainedHash(newest_ ? newest_->hash : "", entry)) {
    return Broken(absl::StrCat("entry ", entry.number,
                               " or the one before was changed after it was written"));
  }
  if (entry.number == anchor_.number && entry.hash != anchor_.hash) {
    return Broken(absl::StrCat("entry ", entry.number, " has the hash ", entry.hash, ", and had ",
                               anchor_.hash));
  }
  if (!newest_) oldest_ = entry.number;
  newest_ = entry;
  return absl::OkStatus();
}

absl::Status AuditChain::Finish() const {
  const bool found = newest_ && oldest_ <= anchor_.number && anchor_.number <= newest_->number;
  if (anchor_.number != 0 && !found) {
    return Broken(absl::StrCat("entry ", anchor_.number, " is not there: the log has ", Range()));
  }
  // Entries that a controller has removed are farther away from the newest.
  const bool too_old = newest_ && oldest_ + kept_ <= newest_->number + 1;
  if (newest_ && oldest_ > after() + 1 && !too_old) {
    return Broken(Entries(after() + 1, oldest_ - 1));
  }
  return absl::OkStatus();
}

std::string AuditChain::Range() const {
  if (!newest_) return "no entries";
  return absl::StrCat("entries ", std::max(oldest_, anchor_.number), " to ", newest_->number);
}

std::string AuditChain::Doubt() const {
  if (!newest_ || oldest_ == 1 || oldest_ < anchor_.number) return "";
  return absl::StrCat("entries before ", oldest_,
                      " are no longer kept, so nothing proves the content of ", oldest_,
                      "; the hashes prove those after it");
}

std::string AuditChain::Head() const {
  return newest_ ? absl::StrCat(newest_->number, ":", newest_->hash) : "";
}

}  // namespace trainyard::cli
