#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/jobs/job_codec.h"
#include "controller/store/backup.h"
#include "controller/store/sqlite_reader.h"
#include "controller/store/sqlite_writer.h"
#include "controller/store/state_files.h"
#include "controller/store/state_lock.h"

namespace trainyard::controller {
namespace {

constexpr int64_t kOriginSeconds = 1'577'836'800;  // 2020-01-01
// If the clock was set back, a raised number is still well above the number that it replaces.
constexpr uint64_t kRaiseAtLeast = 1000;
// The upper half of a revision has 31 bits for a generation. No clock raises it above this, so that
// many starts of the controller may follow.
constexpr uint64_t kMostGeneration = (uint64_t{1} << 31) - (uint64_t{1} << 20);

uint64_t Raise(uint64_t number, absl::Time now,
               uint64_t most = std::numeric_limits<uint64_t>::max()) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToUnixSeconds(now) - kOriginSeconds);
  return std::max(number + kRaiseAtLeast, std::min(uint64_t(seconds), most));
}

absl::StatusOr<WriteBatch> RaiseEpochs(const std::vector<StoredJob>& live, absl::Time now,
                                       const std::string& backup) {
  WriteBatch batch;
  for (const StoredJob& row : live) {
    ASSIGN_OR_RETURN(Job job, DecodeJob(row.body));
    job.epoch = Raise(job.epoch, now);
    StoredJob changed = row;
    changed.body = EncodeJob(job);
    batch.changed_jobs.push_back(std::move(changed));
    batch.events.push_back({row.number,
                            {now, EventType::kWarning, job.epoch,
                             absl::StrCat("the controller's store was restored from ", backup,
                                          ": attempts continue above ", job.epoch)}});
  }
  return batch;
}

// Raises generation and transaction count. Revisions contain the first and the witness compares the
// second, so neither may go back.
absl::Status RaiseNumbers(Database& database, absl::Time now, uint64_t witnessed) {
  ASSIGN_OR_RETURN(const int64_t generation,
                   database.QueryInt("SELECT value FROM meta WHERE key = 'generation'"));
  const std::string generation_sql =
      absl::StrCat("UPDATE meta SET value = ", Raise(uint64_t(generation), now, kMostGeneration),
                   " WHERE key = 'generation'");
  const std::string transactions_sql = absl::StrCat(
      "UPDATE meta SET value = ", witnessed, " WHERE key = 'transactions' AND value < ", witnessed);
  RETURN_IF_ERROR(database.Execute(generation_sql.c_str()));
  return database.Execute(transactions_sql.c_str());
}

absl::Status Prepare(const std::string& path, const std::string& backup, absl::Time now,
                     Witness& witness) {
  ASSIGN_OR_RETURN(Database database, Database::Open(path));
  RETURN_IF_ERROR(VerifyStore(database, backup));
  RETURN_IF_ERROR(RaiseNumbers(database, now, witness.newest().value_or(0)));
  ASSIGN_OR_RETURN(Database second, Database::Open(path));
  SqliteReader reader(std::move(second));
  ASSIGN_OR_RETURN(const std::vector<StoredJob> live, reader.LiveJobs());
  ASSIGN_OR_RETURN(const WriteBatch batch, RaiseEpochs(live, now, backup));
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteWriter> writer,
                   SqliteWriter::Create(std::move(database), {}));
  RETURN_IF_ERROR(writer->Begin());
  RETURN_IF_ERROR(writer->Put(batch));
  RETURN_IF_ERROR(writer->Commit());
  if (!witness.newest()) RETURN_IF_ERROR(witness.Create(writer->transactions()));
  return absl::OkStatus();
}

// Copies the log into the database. Closing a database does this, too, but does not report
// failures.
absl::Status EmptyLog(const std::string& path, const std::string& backup) {
  {
    ASSIGN_OR_RETURN(Database database, Database::Open(path));
    ASSIGN_OR_RETURN(const int64_t busy, database.QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
    if (busy != 0) return absl::InternalError(absl::StrCat("cannot empty the log of ", path));
    RETURN_IF_ERROR(VerifyStore(database, backup));
  }
  if (!Exists(path + "-wal")) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot remove the log of ", path));
}

// The log is moved first, because SQLite would copy it into any other database beside it.
absl::Status MoveAside(const std::string& directory, const std::string& aside) {
  RETURN_IF_ERROR(MakeDirectories(aside));
  for (const char* name : {"/store.db-wal", "/store.db-shm", "/store.db"}) {
    if (!Exists(directory + name)) continue;
    if (::rename((directory + name).c_str(), (aside + name).c_str()) != 0) {
      return ErrnoStatus(errno, "move aside", directory + name);
    }
    RETURN_IF_ERROR(SyncDirectory(aside));
    RETURN_IF_ERROR(SyncDirectory(directory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> RestoreStore(const std::string& state_directory,
                                         const std::string& backup, absl::Time now) {
  ASSIGN_OR_RETURN(const StateLock lock, StateLock::Take(state_directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<Witness> witness,
                   Witness::Load(state_directory + "/witness"));
  const std::string path = state_directory + "/store.db", restoring = path + ".restoring";
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    RETURN_IF_ERROR(RemoveTree(restoring + suffix));  // Left by a restore that was interrupted.
  }
  RETURN_IF_ERROR(CopyFile(backup, restoring));
  RETURN_IF_ERROR(Prepare(restoring, backup, now, *witness));
  RETURN_IF_ERROR(EmptyLog(restoring, backup));
  std::string aside;
  if (Exists(path) || Exists(path + "-wal")) {
    aside = absl::StrCat(state_directory, "/damaged-",
                         absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()));
    for (int i = 2; Exists(aside + "/store.db"); ++i) absl::StrAppend(&aside, "-", i);
    RETURN_IF_ERROR(MoveAside(state_directory, aside));
  }
  RETURN_IF_ERROR(ReplaceFile(restoring, path));
  LogInfo("store_restored", {{"backup", backup}, {"store", path}, {"old_files", aside}});
  return aside;
}

}  // namespace trainyard::controller
