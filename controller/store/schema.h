// The store's tables, and the migration of older files.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

// Since this version, the pages of a store have checksums, and the store has a witness.
inline constexpr int kGuardedVersion = 4;
// Since this version, `steps` has the column `numbers`.
inline constexpr int kNumbersVersion = 7;

// Returns the file's schema version. 0: the file is empty. FAILED_PRECONDITION: a newer Trainyard
// or another program wrote the file. DATA_LOSS: the file is damaged.
absl::StatusOr<int> SchemaVersion(Database& database, const std::string& path);

// Makes an empty file a store, or upgrades an older store, in one transaction.
absl::Status MigrateSchema(Database& database, int version);

// DATA_LOSS: the file as a whole cannot be relied on.
absl::Status DamagedStore(const std::string& path, absl::string_view what);

// Says why a check of the file failed: the file is damaged, or cannot be read at present. Whoever
// was told of damage would go back to a backup, and lose the jobs since.
absl::Status DamagedOrUnreadable(const std::string& path, const absl::Status& why);

int LatestSchemaVersion();

// The SQL that upgrades schema version `version` to the next. Tests make older stores with it.
const char* SchemaMigration(int version);

}  // namespace trainyard::controller
