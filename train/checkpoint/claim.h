// Decides which job owns a checkpoint directory.
//
//   DIR/owner.json      the owner
//   DIR/owner-N.json    the N-th owner, from 2 on: a job that continues the run of the one before
//
// Both are made by link(2), which fails if the file exists. So of jobs that come at once, one wins.
// The owner is the one with the greatest number. Once that is decided, owner.json is replaced by
// its file, for people and for programs that do not know of further owners. A crash in between
// changes nothing.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

struct Owner {
  std::string job_id;
  int64_t number = 1;
  int64_t after_epoch = 0;   // The newest attempt of the owners before this one; 0: none.
  bool is_published = true;  // owner.json has this owner.
};

// Returns the owner of a directory (canonical). Absent: there is no owner.json.
// FAILED_PRECONDITION: an owner file is bad.
absl::StatusOr<std::optional<Owner>> FindOwner(const std::string& directory);

// Returns the error with which ClaimDirectory refuses a job because of the owner, or OK. Changes
// nothing.
absl::Status CheckOwner(const std::string& directory, const std::string& job_id,
                        const std::string& continues);

// Makes this job the owner of `directory` (a path that Roots::MakeDirectory returned), and begins
// the epoch in it (BeginEpoch). With `continues`, the directory passes from that job to this one;
// the job that loses it must have ended. Rank 0 must call this before it looks for a checkpoint. If
// two jobs call it at once, one wins. The owner is unchanged if an error is returned:
// - FAILED_PRECONDITION: the directory belongs to another job or holds files of somebody else.
// - IsSuperseded: a later epoch has begun. A new owner's first epoch must be later than all others.
absl::Status ClaimDirectory(const std::string& directory, const std::string& job_id, int64_t epoch,
                            Storage& storage, const std::string& continues = "");

}  // namespace trainyard
