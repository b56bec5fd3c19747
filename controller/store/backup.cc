#include "controller/store/backup.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/store/row_checksum.h"
#include "controller/store/schema.h"
#include "controller/store/state_files.h"

namespace trainyard::controller {
namespace {

constexpr char kTimeFormat[] = "store-%E4Y%m%dT%H%M%SZ.db";
constexpr char kUnfinished[] = ".unfinished";
constexpr int kPagesPerStep = 256;

absl::Status CopyPages(const std::string& from, const std::string& to,
                       const std::function<bool()>& stop) {
  ASSIGN_OR_RETURN(Database source, Database::Open(from));
  ASSIGN_OR_RETURN(Database target, Database::Open(to));
  // A copy is useless until it is complete, so it needs no journal.
  RETURN_IF_ERROR(target.Execute("PRAGMA journal_mode = OFF"));
  RETURN_IF_ERROR(target.Execute("PRAGMA synchronous = OFF"));
  // An open transaction keeps reading one state of the store. Without it, each write would restart
  // the copy.
  RETURN_IF_ERROR(source.Execute("BEGIN"));
  RETURN_IF_ERROR(source.QueryInt("SELECT count(*) FROM meta").status());
  sqlite3_backup* backup = sqlite3_backup_init(target.handle(), "main", source.handle(), "main");
  if (backup == nullptr) return absl::InternalError(sqlite3_errmsg(target.handle()));
  int code = SQLITE_OK;
  while (code == SQLITE_OK && !stop()) code = sqlite3_backup_step(backup, kPagesPerStep);
  sqlite3_backup_finish(backup);
  if (code == SQLITE_OK) return absl::CancelledError("the backup was stopped");
  if (code == SQLITE_DONE) return absl::OkStatus();
  const std::string text =
      absl::StrCat("cannot copy ", from, " to ", to, ": ", sqlite3_errstr(code));
  return code == SQLITE_IOERR_DATA ? absl::DataLossError(text) : absl::InternalError(text);
}

absl::Status Finish(const std::string& unfinished, const std::string& path) {
  {
    ASSIGN_OR_RETURN(Database copy, Database::Open(unfinished));
    RETURN_IF_ERROR(copy.Execute("PRAGMA journal_mode = DELETE"));  // Makes one file without a log.
    RETURN_IF_ERROR(VerifyStore(copy, unfinished));
  }
  return ReplaceFile(unfinished, path);
}

void RemoveOld(const std::string& directory, absl::Time now) {
  const std::vector<std::string> backups = Backups(directory, now);
  for (size_t i = 0; i + kBackupsKept < backups.size(); ++i) {
    if (::unlink(backups[i].c_str()) == 0) continue;
    LogWarning("backup_not_removed", {{"path", backups[i]}, {"errno", errno}});
  }
}

absl::StatusOr<int64_t> CountDamaged(Database& database, const char* table, const char* good) {
  return database.QueryInt(
      absl::StrCat("SELECT count(*) FROM ", table, " WHERE NOT ", good).c_str());
}

}  // namespace

std::vector<std::string> Backups(const std::string& backup_directory, absl::Time now) {
  std::vector<std::string> backups;
  const auto names = ListDirectory(backup_directory);
  if (!names.ok()) return backups;
  for (const std::string& name : *names) {
    if (BackupTime(name) > absl::InfinitePast()) backups.push_back(backup_directory + "/" + name);
  }
  std::sort(backups.begin(), backups.end(), [now](const std::string& a, const std::string& b) {
    const absl::Time at = BackupTime(a), bt = BackupTime(b);
    return std::pair(at <= now, at) < std::pair(bt <= now, bt);
  });
  return backups;
}

absl::Time BackupTime(const std::string& path) {
  absl::Time time;
  const std::string name = std::filesystem::path(path).filename().string();
  return absl::ParseTime(kTimeFormat, name, &time, nullptr) ? time : absl::InfinitePast();
}

absl::Status VerifyStore(Database& database, const std::string& path) {
  ASSIGN_OR_RETURN(const int version, SchemaVersion(database, path));
  if (version < kGuardedVersion || !GuardedDisk::ChecksPages(database.handle())) {
    return DamagedStore(path,
                        absl::StrCat("it is not a store with checksums (version ", version, ")"));
  }
  const auto pages = GuardedDisk::DamagedPages(database.handle(), UINT32_MAX);
  if (!pages.ok()) return DamagedStore(path, pages.status().message());
  if (!pages->empty()) return DamagedStore(path, absl::StrCat("page ", pages->front()));
  const auto verdict = database.QueryText("PRAGMA quick_check(1)");
  if (!verdict.ok()) return DamagedStore(path, verdict.status().message());
  if (*verdict != "ok") return DamagedStore(path, *verdict);
  ASSIGN_OR_RETURN(const int64_t jobs, CountDamaged(database, "jobs", kJobIsGood));
  ASSIGN_OR_RETURN(const int64_t requests, CountDamaged(database, "requests", kRequestIsGood));
  if (jobs + requests == 0) return absl::OkStatus();
  return DamagedStore(path, absl::StrCat(jobs, " rows of jobs and ", requests, " of requests"));
}

absl::StatusOr<std::string> BackUp(const std::string& state_directory,
                                   const std::string& backup_directory, absl::Time now,
                                   const std::function<bool()>& stop) {
  RETURN_IF_ERROR(MakeDirectories(backup_directory));
  const std::string path =
      backup_directory + "/" + absl::FormatTime(kTimeFormat, now, absl::UTCTimeZone());
  const std::string unfinished = backup_directory + "/store.db" + kUnfinished;
  RETURN_IF_ERROR(RemoveTree(unfinished));  // Left by a controller that was killed.
  absl::Status status = CopyPages(state_directory + "/store.db", unfinished, stop);
  if (status.ok()) status = Finish(unfinished, path);
  if (!status.ok()) {
    (void)RemoveTree(unfinished);
    return status;
  }
  RemoveOld(backup_directory, now);
  return path;
}

}  // namespace trainyard::controller
