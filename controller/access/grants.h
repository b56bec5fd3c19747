// The grants of a controller: a directory with one file each, named by the grant's id. Whoever may
// write there, may do everything: a file that appears lets somebody in, and one that is gone does
// not any more, after the next Refresh. So the directory is also how the owner of the machine gets
// in when all tokens are lost (docs/access.md).

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {

// More than one a worker and a person, of the largest clusters; a bound on memory.
inline constexpr size_t kMostGrants = 100'000;

struct StoredGrant {
  v1::Grant grant;
  std::string secret_hash;  // Of a token: HashSecret of security/tokens.h.
  std::string key_hash;     // Of a worker: the SHA-256 of the public key that joined.
};

// Thread-safe.
class Grants {
 public:
  // Makes the directory where it is missing. Files that cannot be read grant nothing, and are named
  // in the log. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<Grants>> Open(const std::string& directory,
                                                      const Clock& clock);

  // Absent: there is none, or it has expired.
  std::optional<StoredGrant> Find(absl::string_view id) const;
  bool Knows(absl::string_view id) const;  // Whether Find would find it.
  std::vector<v1::Grant> List() const;     // By id; none that has expired.

  // What these say is on the disk before they return. RESOURCE_EXHAUSTED: kMostGrants.
  absl::Status Put(const StoredGrant& grant);
  // As Put, where the grant still is there. UNAUTHENTICATED: it was revoked.
  absl::Status Replace(const StoredGrant& grant);
  absl::StatusOr<v1::Grant> Revoke(const std::string& id);  // NOT_FOUND.

  // Makes `worker` of the joiner's grant `joiner`, and takes one of its uses; all or nothing,
  // however many callers come at once. A worker that comes again with the same key takes none, and
  // keeps its grant's id. Empty `joiner`: no grant stands behind it, and nobody counts its uses.
  // FAILED_PRECONDITION: no use is left; another key has the worker's id.
  absl::StatusOr<v1::Grant> Join(const std::string& joiner, StoredGrant worker);

  // Takes in files that others have made or removed. A file that somebody edits counts from the
  // next start on.
  void Refresh();

 private:
  Grants(std::string directory, const Clock& clock)
      : directory_(std::move(directory)), clock_(clock) {}
  bool Holds(const StoredGrant& grant) const;
  // Whether nothing has come or gone since the last Refresh: to list thousands of files takes a
  // while.
  bool Unchanged();
  absl::StatusOr<std::set<std::string>> IdsOnDisk() const;
  absl::StatusOr<StoredGrant> Read(const std::string& id) const;
  std::string PathOf(absl::string_view id) const;
  std::optional<StoredGrant> Kept(absl::string_view id) const;  // Expired or not.
  absl::Status PutOnDisk(const StoredGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  absl::Status ReplaceOnDisk(const StoredGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // Where there are too many, those that have expired go: no sooner, for a clock that jumps must
  // not remove what holds.
  absl::Status MakeRoom(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  absl::Status RemoveFromDisk(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // The grant of a worker with this id that holds.
  std::optional<StoredGrant> OfWorker(const std::string& worker_id) const;

  const std::string directory_;
  const Clock& clock_;
  // One change at a time. Held while the disk is waited for, and before mutex_, which is not: every
  // call and every word of a worker asks for a grant.
  Mutex changing_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  std::map<std::string, StoredGrant, std::less<>> grants_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // Made here.
  // Since the last Refresh began, which may have read them just before.
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);
  // Files that were named in the log, and whether what was wrong lies in the file. Refresh's.
  std::map<std::string, bool> unreadable_;
  absl::Time looked_at_ = absl::InfinitePast();  // The directory's time then. Refresh's.
};

// The file of a grant: protobuf's JSON of v1::Grant, with the hashes beside it.
std::string ToJson(const StoredGrant& grant);
absl::StatusOr<StoredGrant> GrantFromJson(const std::string& text);

// A new token, and the grant for it; `grant` says all but id and time of creation.
struct NewGrant {
  StoredGrant stored;
  std::string token;
};
absl::StatusOr<NewGrant> MakeToken(v1::Grant grant, absl::Time now);

}  // namespace trainyard::controller
