// Backs up a store that is in use, and restores a store from a backup. A backup is one file, a
// database like the store's own. Its name is store-YYYYMMDDTHHMMSSZ.db, with the time (UTC) at
// which the backup was begun. Each controller needs its own directory for backups. The directory
// may be on a mount of another machine.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

inline constexpr size_t kBackupsKept = 24;

// Copies the present store of a state directory, and returns the backup's path. Transactions
// continue meanwhile, and the log grows by them. The copy is synced and verified before it gets its
// name. Then all but the last kBackupsKept of Backups() are removed. `stop` is asked between two
// steps. CANCELLED: `stop` returned true. DATA_LOSS: the store or the copy is damaged, and no
// backup was made.
absl::StatusOr<std::string> BackUp(const std::string& state_directory,
                                   const std::string& backup_directory, absl::Time now,
                                   const std::function<bool()>& stop);

// Returns the backups, oldest first. Those whose names are later than `now` were made while the
// clock was ahead. Nobody knows when that was, so they come first, as the oldest: otherwise each
// new backup would be the first to be removed until the clock has caught up with them. Empty if the
// directory cannot be read.
std::vector<std::string> Backups(const std::string& backup_directory, absl::Time now);
// Returns when the backup was begun, by its name. The distant past: this is not the name of a
// backup.
absl::Time BackupTime(const std::string& path);

// Compares every page, and every row of jobs and requests, with its checksum, and checks that
// tables and indexes are consistent. DATA_LOSS names the damage.
absl::Status VerifyStore(Database& database, const std::string& path);

// Replaces the store by a verified copy of the backup. The store's old files are moved to
// STATE/damaged-TIME/. Nothing is deleted. Every job that is live in the backup continues with
// attempt numbers greater than any that workers or checkpoint directories may know. The first of
// them is the number of seconds since 2020. (Attempts count up from 1 or from an earlier such
// number, and begin less than once a second, so no attempt's number is ahead of the clock.) Returns
// the directory of the old files, or an empty text if there were none. A restore that was
// interrupted can be repeated; until then, the controller refuses to start. FAILED_PRECONDITION: a
// controller uses the directory.
absl::StatusOr<std::string> RestoreStore(const std::string& state_directory,
                                         const std::string& backup, absl::Time now);

}  // namespace trainyard::controller
