// The store's tables, and how an older file becomes a current one.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "controller/store/sqlite.h"

namespace trainyard::controller {

// Makes an empty file a store, or migrates an older one, in one transaction. FAILED_PRECONDITION:
// the file was written by a newer Trainyard, or belongs to another program. DATA_LOSS: it is
// damaged.
absl::Status PrepareSchema(Database& database, const std::string& path);

int LatestSchemaVersion();

// What takes a store from schema version `version` to the next: tests make older stores of it.
const char* SchemaMigration(int version);

}  // namespace trainyard::controller
