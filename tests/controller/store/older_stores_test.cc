// Proves that a store which an older Trainyard wrote is read, keeps everything, and gets the
// checksums that it lacks.

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <future>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/store/row_checksum.h"
#include "controller/store/schema.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::controller {
namespace {

void Run(sqlite3* db, const std::string& sql) {
  char* error = nullptr;
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
}

// As version `version` wrote it, with plain SQLite: a row in each table, and enough jobs for pages
// of every kind. Closed without a checkpoint, as a controller that was killed leaves it.
void MakeOldStore(const std::string& path, int version) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  for (int v = 0; v < version; ++v) Run(db, SchemaMigration(v));
  Run(db, absl::StrCat("PRAGMA application_id = ", 0x54595244));
  Run(db, absl::StrCat("PRAGMA user_version = ", version, "; PRAGMA journal_mode = WAL"));
  sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  for (int number = 1; number <= 50; ++number) {
    Run(db, absl::StrCat("INSERT INTO jobs VALUES (", number,
                         ", 1, x'010200', 'config', 'facts', hex(randomblob(1500)))"));
    Run(db, absl::StrCat("INSERT INTO requests VALUES ('r", number, "', ", number, ")"));
    Run(db, absl::StrCat("INSERT INTO events VALUES (", number, ", 1, 5, 1, 0, 'queued')"));
    Run(db, absl::StrCat("INSERT INTO logs VALUES (", number, ", 1, 5, 1, 0, 'line')"));
    const std::string more = version > 2 ? ", NULL, 700.5, NULL, NULL, 'hw,sw'" : "";
    Run(db, absl::StrCat("INSERT INTO steps VALUES (", number,
                         ", 1, 1, 1, 0.5, NULL, 2, 64, 1, 2, 3, 4, 5, 6, 7, 8, NULL, 0.25, 9, 0, "
                         "3e19, x'01'",
                         version > 1 ? ", 1.5" : "", more, ")"));
  }
  ASSERT_EQ(sqlite3_close(db), SQLITE_OK);
}

TEST(OlderStores, AreReadWholeAndGetChecksums) {
  for (int version = 1; version < kGuardedVersion; ++version) {
    SCOPED_TRACE(absl::StrCat("version ", version));
    const TempDirectory directory;
    const std::string path = directory.path() + "/store.db";
    MakeOldStore(path, version);
    if (::testing::Test::HasFatalFailure()) return;
    for (const char* life : {"first", "second"}) {
      SCOPED_TRACE(life);
      const auto store = SqliteStore::Open(directory.path());
      ASSERT_TRUE(store.ok()) << store.status();
      const auto live = (*store)->LiveJobs();
      ASSERT_EQ(live->size(), 50u);
      for (const StoredJob& job : *live) ASSERT_FALSE(job.damaged) << job.number;
      EXPECT_EQ(live->back().spec, std::string("\1\2\0", 3));
      EXPECT_EQ((*store)->FindRequest("r7").value(), 7u);
      EXPECT_EQ((*store)->ReadEvents(7)->at(0).message, "queued");
      EXPECT_EQ((*store)->ReadLogs(7, 0, -1, 9)->lines.at(0).text, "line");
      const auto steps = (*store)->ReadSteps(7, 0, 9);
      ASSERT_EQ(steps->size(), 1u) << steps.status();
      EXPECT_EQ(steps->at(0).loss, 0.5);
      EXPECT_EQ(steps->at(0).ranks_seen, "\1");
      EXPECT_EQ(steps->at(0).load_balancing_loss.value_or(0), version > 1 ? 1.5 : 0);
      EXPECT_EQ(steps->at(0).gpu.power_watts.value_or(0), version > 2 ? 700.5 : 0);
    }
    auto database = Database::Open(path);
    ASSERT_TRUE(database->Execute("UPDATE jobs SET body = 'x' WHERE number = 9").ok());
    ASSERT_TRUE(database->Execute("UPDATE steps SET loss = 1 WHERE number = 7").ok());
    const auto store = SqliteStore::Open(directory.path());
    EXPECT_TRUE(absl::IsDataLoss((*store)->GetJob(9).status()));
    EXPECT_TRUE(absl::IsDataLoss((*store)->ReadSteps(7, 0, 9).status()));
  }
}

TEST(OlderStores, OneWithoutAnAuditLogGetsAnEmptyOne) {
  const TempDirectory directory;
  { ASSERT_TRUE(SqliteStore::Open(directory.path()).ok()); }
  {
    auto database = Database::Open(directory.path() + "/store.db");
    ASSERT_TRUE(database
                    ->Execute("DROP TABLE audit; DROP INDEX jobs_by_namespace; "
                              "ALTER TABLE steps DROP COLUMN numbers")
                    .ok());
    ASSERT_TRUE(database->Execute("PRAGMA user_version = 4").ok());
  }
  const auto store = SqliteStore::Open(directory.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->NewestAudit().value(), 0u);
}

// A store of the last release has no index of namespaces: its jobs are in there at once.
TEST(OlderStores, JobsOfNamespacesAreFound) {
  const TempDirectory directory;
  const auto put = [&](uint64_t number, const std::string& facts) {
    const auto store = SqliteStore::Open(directory.path());
    ASSERT_TRUE(store.ok()) << store.status();
    WriteBatch batch;
    batch.new_jobs.push_back({number, JobState::kQueued, "spec", "{}", facts, "body"});
    std::promise<absl::Status> done;
    const Refusal refuse =
        (*store)->Write(std::move(batch), OnFailure::kReport,
                        [&](const absl::Status& status) { done.set_value(status); });
    ASSERT_FALSE(refuse);
    ASSERT_TRUE(done.get_future().get().ok());
  };
  put(1, R"({"namespace":"research"})");
  put(2, "{}");
  {
    auto database = Database::Open(directory.path() + "/store.db");
    ASSERT_TRUE(database
                    ->Execute("DROP INDEX jobs_by_namespace; PRAGMA user_version = 5; "
                              "ALTER TABLE steps DROP COLUMN numbers")
                    .ok());
  }
  put(3, R"({"namespace":"research"})");
  const auto store = SqliteStore::Open(directory.path());
  const auto research = (*store)->ListJobs({.name_space = "research"}, 0, 9);
  ASSERT_EQ(research->size(), 2u) << research.status();
  EXPECT_EQ((*research)[0].number, 3u);
  EXPECT_EQ((*research)[1].number, 1u);
  EXPECT_FALSE((*research)[1].damaged);
  EXPECT_EQ((*store)->ListJobs({.name_space = "default"}, 0, 9)->at(0).number, 2u);
}

// As version 6 has it, with one step of each of two jobs.
void MakeStoreOfVersion6(const std::string& directory) {
  { ASSERT_TRUE(SqliteStore::Open(directory).ok()); }
  auto database = Database::Open(directory + "/store.db");
  ASSERT_TRUE(database->Execute("ALTER TABLE steps DROP COLUMN numbers").ok());
  for (const int job : {1, 2}) {
    const std::string insert = absl::StrCat(
        "INSERT INTO steps (number, ", kStepColumns, ") VALUES (", job,
        ", 1, 1, 1, 0.5, NULL, 2, 64, 1, 2, 3, 4, 5, 6, 7, 8, NULL, 0.25, 9, 0, 3e19, x'01', "
        "NULL, NULL, 700.5, NULL, NULL, 'throttled by ",
        job, "')");
    ASSERT_TRUE(database->Execute(insert.c_str()).ok());
  }
  const std::string rest = absl::StrCat("UPDATE steps SET checksum = ", StepChecksum(false),
                                        "; PRAGMA user_version = 6");
  ASSERT_TRUE(database->Execute(rest.c_str()).ok());
}

// Catches an upgrade after which every step, or none, counts as damaged.
TEST(OlderStores, AStepThatWasDamagedStaysDamaged) {
  const TempDirectory directory;
  MakeStoreOfVersion6(directory.path());
  {
    auto database = Database::Open(directory.path() + "/store.db");
    ASSERT_TRUE(database->Execute("UPDATE steps SET loss = 7 WHERE number = 2").ok());
  }
  const auto store = SqliteStore::Open(directory.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto good = (*store)->ReadSteps(1, 0, 9);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->at(0).loss, 0.5);
  EXPECT_EQ(good->at(0).gpu.power_watts, 700.5);
  EXPECT_TRUE(absl::IsDataLoss((*store)->ReadSteps(2, 0, 9).status()));
}

// Damage is judged before the upgrade, with the columns that the table then has.
TEST(OlderStores, ADamagedPageOfStepsIsTolerated) {
  const TempDirectory directory;
  MakeStoreOfVersion6(directory.path());
  const std::string path = directory.path() + "/store.db";
  std::string bytes = *ReadFile(path);
  const size_t place = bytes.find("throttled by 2");
  ASSERT_NE(place, std::string::npos);
  bytes[place] ^= 1;
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  const auto store = SqliteStore::Open(directory.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->ReadSteps(1, 0, 9).ok());
  EXPECT_TRUE(absl::IsDataLoss((*store)->ReadSteps(2, 0, 9).status()));
}

}  // namespace
}  // namespace trainyard::controller
