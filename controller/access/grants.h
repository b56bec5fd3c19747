// The grants of a controller. A directory holds one file for each grant, named by the grant's id.
// After the next Refresh, a new file lets somebody in, and a file that was removed does not any
// more. So whoever may write to the directory may do everything. The owner of the machine gets in
// this way when all tokens are lost (docs/access.md).

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

// Bounds memory. The largest clusters have one grant for each worker and each person, and need
// less.
inline constexpr size_t kMostGrants = 100'000;

struct StoredGrant {
  v1::Grant grant;
  std::string secret_hash;  // A token's: HashSecret of security/tokens.h.
  std::string key_hash;     // A worker's: the SHA-256 of the public key that joined.
  // A token's: of the call that made it. Not in `grant`, whose fields an earlier release must know.
  std::string request_id = {};
};

// Thread-safe.
class Grants {
 public:
  // Makes the directory if there is none. The log names files that cannot be read; they grant
  // nothing. `clock` outlives the grants.
  static absl::StatusOr<std::unique_ptr<Grants>> Open(const std::string& directory,
                                                      const Clock& clock);

  // Absent: there is no such grant, or the grant has expired.
  std::optional<StoredGrant> Find(absl::string_view id) const;
  bool Knows(absl::string_view id) const;  // Whether Find would find it.
  std::vector<v1::Grant> List() const;     // By id; none that has expired.

  // These three return once the change is on the disk. RESOURCE_EXHAUSTED: there are kMostGrants.
  // Put also removes the grants that the same creator has made with the same request_id, if that is
  // not empty: the call was repeated, because nobody has got the first answer.
  absl::Status Put(const StoredGrant& grant);
  // Does the same as Put if the grant still exists. UNAUTHENTICATED: the grant was revoked.
  absl::Status Replace(const StoredGrant& grant);
  // NOT_FOUND: there is no such grant.
  absl::StatusOr<v1::Grant> Revoke(const std::string& id);

  // Stores the grant `worker`, and takes one use from the joiner's grant with the id `joiner`.
  // Both happen or neither, however many callers come at once. A worker that joins again with the
  // same key takes no use, and keeps the id of its grant. Empty `joiner`: the joiner has no grant,
  // and uses are not counted.
  // UNAUTHENTICATED: the joiner's grant was revoked. FAILED_PRECONDITION: no use is left, or a
  // worker with this id has another key.
  absl::StatusOr<v1::Grant> Join(const std::string& joiner, StoredGrant worker);

  // Reads files that others have made, and forgets those that others have removed. A change to a
  // file that was read counts from the next start of the controller on.
  void Refresh() { (void)Look(); }

 private:
  // Does what Refresh does. An error: a file could not be read, and the next call reads it again.
  absl::Status Look();
  Grants(std::string directory, const Clock& clock)
      : directory_(std::move(directory)), clock_(clock) {}
  bool Holds(const StoredGrant& grant) const;
  // Returns whether no file has come or gone since the last Refresh. Saves listing thousands of
  // files.
  bool Unchanged();
  absl::StatusOr<std::set<std::string>> IdsOnDisk() const;
  absl::StatusOr<StoredGrant> Read(const std::string& id) const;
  std::string PathOf(absl::string_view id) const;
  // Returns the grant even if it has expired.
  std::optional<StoredGrant> Kept(absl::string_view id) const;
  absl::Status PutOnDisk(const StoredGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  absl::Status ReplaceOnDisk(const StoredGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // Removes the expired grants if there are too many grants for one more. Expired grants stay until
  // then, because a clock that jumps must not remove grants that are good.
  absl::Status MakeRoom(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  absl::Status RemoveFromDisk(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // Returns the ids of the grants that another attempt of the same call has made.
  std::vector<std::string> OfSameRequest(const StoredGrant& grant) const;
  // Returns the unexpired grant of the worker with this id.
  std::optional<StoredGrant> OfWorker(const std::string& worker_id) const;

  const std::string directory_;
  const Clock& clock_;
  // Lets one change happen at a time. Held while a change waits for the disk. mutex_ is never held
  // then, because every call and every message of a worker asks for a grant.
  Mutex changing_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  std::map<std::string, StoredGrant, std::less<>> grants_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // How many were made through this object.
  // Grants removed since the last Refresh began. That Refresh may have read them before.
  std::set<std::string> removed_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> unreadable_;  // The log has named them. Used by Refresh alone.
  // The directory's time of change at the last Refresh. Used by Refresh alone.
  absl::Time looked_at_ = absl::InfinitePast();
};

// The text of a grant's file: protobuf's JSON of v1::Grant, with the hashes beside it.
std::string ToJson(const StoredGrant& grant);
absl::StatusOr<StoredGrant> GrantFromJson(const std::string& text);

struct NewGrant {
  StoredGrant stored;
  std::string token;
};
// Makes a token, and the grant for it. `grant` has all fields but the id and the time of creation.
absl::StatusOr<NewGrant> MakeToken(v1::Grant grant, absl::Time now);

}  // namespace trainyard::controller
