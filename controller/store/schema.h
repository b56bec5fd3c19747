// The store's tables, and how an older file becomes a current one.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

// From this version on the pages of a store carry checksums, and a witness stands beside it.
inline constexpr int kGuardedVersion = 4;
// From this one on, `steps` has the column `numbers`.
inline constexpr int kNumbersVersion = 7;

// 0: an empty file. FAILED_PRECONDITION: the file was written by a newer Trainyard, or belongs to
// another program. DATA_LOSS: it is damaged.
absl::StatusOr<int> SchemaVersion(Database& database, const std::string& path);

// Makes an empty file a store, or an older store a current one, in one transaction.
absl::Status MigrateSchema(Database& database, int version);

// DATA_LOSS: the file as a whole cannot be relied on.
absl::Status DamagedStore(const std::string& path, absl::string_view what);

int LatestSchemaVersion();

// What takes a store from schema version `version` to the next: tests make older stores of it.
const char* SchemaMigration(int version);

}  // namespace trainyard::controller
