// Opens and checks the files of a state directory: the database, its log and the witness. Damage
// that goes beyond single rows is refused, and a refusal changes nothing.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "controller/store/sqlite.h"
#include "controller/store/witness.h"

namespace trainyard::controller {

// The operator's decision about a store that was refused.
struct StoreRecovery {
  bool accept_loss = false;      // Start without the missing transactions.
  std::string backup_directory;  // The error names the newest backup in it.
};

struct StoreFiles {
  std::unique_ptr<Witness> witness;
  Database writer;
  Database reader;
  size_t damaged_pages;  // Pages in which single rows are damaged.
};

// Makes a store if the directory holds none, and upgrades an older store. FAILED_PRECONDITION: see
// SchemaVersion. DATA_LOSS: the database, its log or the witness is damaged or missing, or
// acknowledged transactions are missing; the message says which, and what to do.
absl::StatusOr<StoreFiles> OpenStoreFiles(const std::string& directory,
                                          const StoreRecovery& recovery);

// Adds the newest backup to the message of a DATA_LOSS. See Backups() for `now`.
absl::Status WithNewestBackup(const absl::Status& status, const std::string& backup_directory,
                              absl::Time now);

}  // namespace trainyard::controller
