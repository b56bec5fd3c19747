#include "controller/store/schema.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/store/row_checksum.h"

namespace trainyard::controller {
namespace {

// "TYRD" distinguishes a store from other SQLite files.
constexpr int64_t kApplicationId = 0x54595244;

// Entry v upgrades schema version v to v + 1. Entries are never changed, only appended.
constexpr std::array<const char*, 7> kMigrations = {R"sql(
  CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO meta VALUES ('generation', 0);
  CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, state INTEGER NOT NULL, spec BLOB NOT NULL, config TEXT NOT NULL,
    facts TEXT NOT NULL, body TEXT NOT NULL);
  CREATE INDEX jobs_by_state ON jobs (state, number);
  CREATE TABLE requests (request_id TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX requests_by_number ON requests (number);
  CREATE TABLE events (
    number INTEGER NOT NULL, n INTEGER NOT NULL, time INTEGER NOT NULL, type INTEGER NOT NULL,
    epoch INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (number, n)) WITHOUT ROWID;
  CREATE TABLE steps (
    number INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    complete INTEGER NOT NULL, loss REAL, grad_norm REAL, learning_rate REAL,
    tokens INTEGER NOT NULL, seconds REAL, data REAL, forward REAL, backward REAL, grad_sync REAL,
    optimizer REAL, pipeline_bubble REAL, checkpoint REAL, mfu REAL, validation_loss REAL,
    finish_time INTEGER NOT NULL, skipped INTEGER NOT NULL, model_flops REAL,
    ranks_seen BLOB NOT NULL, PRIMARY KEY (number, step)) WITHOUT ROWID;
  CREATE TABLE logs (
    number INTEGER NOT NULL, n INTEGER NOT NULL, time INTEGER NOT NULL, epoch INTEGER NOT NULL,
    rank INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (number, n)) WITHOUT ROWID;
)sql",
                                                    R"sql(
  ALTER TABLE steps ADD COLUMN load_balancing_loss REAL;
)sql",
                                                    R"sql(
  ALTER TABLE steps ADD COLUMN gpu_utilization REAL;
  ALTER TABLE steps ADD COLUMN gpu_power_watts REAL;
  ALTER TABLE steps ADD COLUMN gpu_sm_clock_hertz REAL;
  ALTER TABLE steps ADD COLUMN gpu_temperature_celsius REAL;
  ALTER TABLE steps ADD COLUMN gpu_throttle_reasons TEXT;
)sql",
                                                    // Spelled out, for entries are never changed.
                                                    R"sql(
  ALTER TABLE jobs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN state_checksum INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE requests ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE events ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE steps ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE logs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
  UPDATE jobs SET checksum = row_checksum(number, spec, config, facts),
    state_checksum = row_checksum(number, state, body);
  UPDATE requests SET checksum = row_checksum(request_id, number);
  UPDATE events SET checksum = row_checksum(number, n, time, type, epoch, message);
  UPDATE steps SET checksum = row_checksum(number, step, epoch, complete, loss, grad_norm,
    learning_rate, tokens, seconds, data, forward, backward, grad_sync, optimizer, pipeline_bubble,
    checkpoint, mfu, validation_loss, finish_time, skipped, model_flops, ranks_seen,
    load_balancing_loss, gpu_utilization, gpu_power_watts, gpu_sm_clock_hertz,
    gpu_temperature_celsius, gpu_throttle_reasons);
  UPDATE logs SET checksum = row_checksum(number, n, time, epoch, rank, text);
  INSERT INTO meta VALUES ('transactions', 0);
)sql",
                                                    R"sql(
  CREATE TABLE audit (
    n INTEGER PRIMARY KEY, time INTEGER NOT NULL, caller TEXT NOT NULL, credential TEXT NOT NULL,
    peer TEXT NOT NULL, method TEXT NOT NULL, target TEXT NOT NULL, namespace TEXT NOT NULL,
    detail TEXT NOT NULL, outcome TEXT NOT NULL, message TEXT NOT NULL, hash TEXT NOT NULL);
)sql",
                                                    // The expression is kNamespaceOfJob's.
                                                    R"sql(
  CREATE INDEX jobs_by_namespace ON jobs (
    CASE WHEN json_valid(facts) THEN coalesce(json_extract(facts, '$.namespace'), 'default') END,
    state, number);
)sql",
                                                    R"sql(
  ALTER TABLE steps ADD COLUMN numbers TEXT;
)sql"};

}  // namespace

int LatestSchemaVersion() { return int(kMigrations.size()); }

const char* SchemaMigration(int version) { return kMigrations.at(size_t(version)); }

absl::Status DamagedStore(const std::string& path, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("store ", path, " is damaged: ", what, "; ", kRestoreHint,
                   ", or move the whole state directory away to start with no jobs"));
}

absl::Status DamagedOrUnreadable(const std::string& path, const absl::Status& why) {
  if (absl::IsUnavailable(why) || absl::IsPermissionDenied(why)) {
    return absl::Status(why.code(), absl::StrCat(why.message(),
                                                 "; nothing was changed: see why "
                                                 "the files cannot be read, and start again"));
  }
  return DamagedStore(path, why.message());
}

absl::StatusOr<int> SchemaVersion(Database& database, const std::string& path) {
  const auto version = database.QueryInt("PRAGMA user_version");
  if (!version.ok()) return DamagedOrUnreadable(path, version.status());
  const auto application = database.QueryInt("PRAGMA application_id");
  if (!application.ok()) return DamagedOrUnreadable(path, application.status());
  const auto tables = database.QueryInt("SELECT count(*) FROM sqlite_master");
  if (!tables.ok()) return DamagedOrUnreadable(path, tables.status());
  if (*tables > 0 && *application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, " is another program's database: give an empty directory"));
  }
  if (*version > LatestSchemaVersion()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", path, " has schema version ", *version, ", and this program knows up to ",
        LatestSchemaVersion(), ": run the newer Trainyard that wrote it"));
  }
  return int(*version);
}

absl::Status MigrateSchema(Database& database, int version) {
  if (version == LatestSchemaVersion()) return absl::OkStatus();
  RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  for (; version < LatestSchemaVersion(); ++version) {
    RETURN_IF_ERROR(database.Execute(kMigrations[size_t(version)]));
  }
  RETURN_IF_ERROR(
      database.Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId).c_str()));
  RETURN_IF_ERROR(database.Execute(absl::StrCat("PRAGMA user_version = ", version).c_str()));
  return database.Execute("COMMIT");
}

}  // namespace trainyard::controller
