// Opens the files of a state directory, and answers for what is in them: the database, its log and
// the witness. Whatever is damaged beyond a row is refused here, and nothing is changed by that.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "controller/store/sqlite.h"
#include "controller/store/witness.h"

namespace trainyard::controller {

// What somebody has decided about a store that was refused.
struct StoreRecovery {
  bool accept_loss = false;      // Start without what is missing.
  std::string backup_directory;  // Where the newest backup is looked for, to name it.
};

struct StoreFiles {
  std::unique_ptr<Witness> witness;
  Database writer;
  Database reader;
  size_t damaged_pages;  // In which only rows are damaged.
};

// An empty or missing directory becomes an empty store, and an older store a current one.
// FAILED_PRECONDITION: see SchemaVersion. DATA_LOSS: the file, its log or the witness is damaged,
// or acknowledged transactions are missing; the message says which, and what can be done.
absl::StatusOr<StoreFiles> OpenStoreFiles(const std::string& directory,
                                          const StoreRecovery& recovery);

// Adds to a DATA_LOSS which backup is the newest.
absl::Status WithNewestBackup(const absl::Status& status, const std::string& backup_directory);

}  // namespace trainyard::controller
