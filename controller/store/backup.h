// Backups of a store that is in use, and the way back to one. A backup is one file, a database like
// the store's own, named store-YYYYMMDDTHHMMSSZ.db by the time (UTC) at which it was begun. Each
// controller needs a directory of its own for them; it may be on another machine's mount.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

inline constexpr size_t kBackupsKept = 24;

// Copies the store of a state directory as it is now, and returns the backup's path. Writers go on
// meanwhile; the log grows by what they write. The copy is synced and verified before it gets its
// name, and backups beyond the newest kBackupsKept are removed. CANCELLED: `stop`, which is asked
// between two steps, said so. DATA_LOSS: the store or the copy is damaged, and no backup was made.
absl::StatusOr<std::string> BackUp(const std::string& state_directory,
                                   const std::string& backup_directory, absl::Time now,
                                   const std::function<bool()>& stop);

// Oldest first; empty where the directory cannot be read.
std::vector<std::string> Backups(const std::string& backup_directory);
// When it was begun, by its name. Not a backup's name: the distant past.
absl::Time BackupTime(const std::string& path);

// Compares every page and every row of jobs and requests with its checksum, and looks whether the
// tables and indexes hang together. DATA_LOSS names what is wrong.
absl::Status VerifyStore(Database& database, const std::string& path);

// Puts a verified copy of the backup in the place of the store. The files that lay there are moved
// to STATE/damaged-TIME/, and nothing is deleted. Every job that is live in the backup continues
// with attempts numbered above all that workers or checkpoint directories may know: the seconds
// since 2020. (Attempts are counted up from 1 or from an earlier such number, and begin less than
// once a second, so that no attempt's number is ahead of the clock.) Returns that directory, or
// nothing where nothing was moved. Interrupted, it can be repeated; a start in between is refused.
// FAILED_PRECONDITION: a controller uses the directory.
absl::StatusOr<std::string> RestoreStore(const std::string& state_directory,
                                         const std::string& backup, absl::Time now);

}  // namespace trainyard::controller
