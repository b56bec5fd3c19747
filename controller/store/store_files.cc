#include "controller/store/store_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/store/backup.h"
#include "controller/store/row_checksum.h"
#include "controller/store/schema.h"
#include "controller/store/state_files.h"

namespace trainyard::controller {
namespace {

// How many pages are checked at the start: 1 GiB, which takes a third of a second if the file is in
// memory. Later pages are checked when they are read.
constexpr uint32_t kPagesAtStart = 262'144;

// Made once a store exists. Outlives the store if its other files are lost.
constexpr char kMarker[] = "store.made";

// Rewrites an older store with room for checksums in its pages.
absl::Status RebuildWithChecksums(Database database, const std::string& path) {
  LogInfo("store_rebuilt", {{"store", path}, {"meaning", "its pages get checksums"}});
  const std::string rebuilt = path + ".rebuilt";
  RETURN_IF_ERROR(RemoveTree(rebuilt));
  const auto verdict = database.QueryText("PRAGMA quick_check(1)");
  if (!verdict.ok()) return DamagedOrUnreadable(path, verdict.status());
  if (*verdict != "ok") return DamagedStore(path, *verdict);
  database.KeepLogOnClose(false);
  RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode = DELETE"));  // Empties the log.
  ASSIGN_OR_RETURN(Statement vacuum, database.Prepare("VACUUM INTO ?"));
  RETURN_IF_ERROR(vacuum.BindText(1, rebuilt).Run());
  return ReplaceFile(rebuilt, path);
}

// Checks the order of a table. These tables are sorted by job. A damaged row among the rows of
// other jobs is missing in its own job, and a query of its job would not notice that.
absl::Status CheckOrder(Database& database, const std::string& path, const std::string& table,
                        int version) {
  const std::string good = table == "events" ? kEventIsGood
                           : table == "logs" ? kLogIsGood
                                             : StepIsGood(version >= kNumbersVersion);
  ASSIGN_OR_RETURN(Statement rows,
                   database.Prepare(absl::StrCat("SELECT number, ", good, " FROM ", table)));
  int64_t before = 0, least = INT64_MAX, most = 0;  // Of the damaged rows since `before`.
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, rows.Next());
    const int64_t number = more ? rows.Int(0) : INT64_MAX;
    if (more && rows.Int(1) == 0) {
      least = std::min(least, number);
      most = std::max(most, number);
      continue;
    }
    if (least < before || most > number) {
      return DamagedStore(path, absl::StrCat("rows of ", table, " have lost their jobs"));
    }
    if (!more) return absl::OkStatus();
    before = number;
    least = INT64_MAX;
    most = 0;
  }
}

// Finds out whether the damage may be in single rows alone. If so, the pages are tolerated from now
// on, because each row has its own checksum. DATA_LOSS: the damage is in the structure of the file.
absl::Status Judge(Database& database, const std::string& path, const std::vector<uint32_t>& pages,
                   int version) {
  const std::string list = absl::StrJoin(pages, ", ");
  database.disk().Tolerate({pages.begin(), pages.end()});
  const auto verdict = database.QueryText("PRAGMA quick_check(1)");
  if (!verdict.ok()) {
    return DamagedStore(path, absl::StrCat("pages ", list, ": ", verdict.status().message()));
  }
  if (*verdict != "ok") return DamagedStore(path, absl::StrCat("pages ", list, ": ", *verdict));
  for (const uint32_t page : pages) {
    ASSIGN_OR_RETURN(
        Statement owner,
        database.Prepare(
            "SELECT name, pagetype, name IN ('jobs', 'requests', 'events', 'steps', "
            "'logs', 'audit') AND pagetype <> 'internal' FROM dbstat WHERE pageno = ?"));
    owner.Bind(1, int64_t(page));
    ASSIGN_OR_RETURN(const bool found, owner.Next());
    if (!found) return DamagedStore(path, absl::StrCat("page ", page, ", which is free"));
    const std::string name = owner.Text(0), type = owner.Text(1);
    if (owner.Int(2) == 0) {
      return DamagedStore(path, absl::StrCat("page ", page, ", ", type, " of ", name));
    }
    LogError("store_page_damaged", {{"page", page}, {"table", name}, {"store", path}});
    if (name == "jobs" || name == "requests" || name == "audit") continue;
    owner.Reset();
    RETURN_IF_ERROR(CheckOrder(database, path, name, version));
  }
  return absl::OkStatus();
}

absl::Status Missing(const std::string& path, uint64_t witnessed, uint64_t found) {
  return DamagedStore(path, absl::StrCat(witnessed - found,
                                         " acknowledged transactions are missing (the witness "
                                         "knows ",
                                         witnessed, ", the store reaches ", found,
                                         "): the file or its log was cut short, removed or "
                                         "replaced (--accept-loss starts without them)"));
}

// Compares the store's count of transactions with the witness's. Makes a witness if there is none
// yet. Returns the count.
absl::StatusOr<uint64_t> CompareWithWitness(Database& database, const std::string& path,
                                            Witness& witness, int version, bool accept_loss) {
  int64_t found = 0;
  if (version >= kGuardedVersion) {
    const auto count = database.QueryInt("SELECT value FROM meta WHERE key = 'transactions'");
    if (!count.ok()) return DamagedOrUnreadable(path, count.status());
    found = *count;
  }
  const std::optional<uint64_t> witnessed = witness.newest();
  if (!witnessed) {
    if (version >= kGuardedVersion && !accept_loss) {
      return DamagedStore(
          path,
          "its witness (the file `witness` beside it) is missing or damaged, so it is unknown "
          "whether acknowledged transactions are missing (--accept-loss starts nevertheless)");
    }
    RETURN_IF_ERROR(witness.Create(uint64_t(found)));
    return uint64_t(found);
  }
  if (*witnessed <= uint64_t(found)) return uint64_t(found);
  if (!accept_loss) return Missing(path, *witnessed, uint64_t(found));
  LogWarning("loss_accepted", {{"store", path},
                               {"transactions", *witnessed - uint64_t(found)},
                               {"witness", *witnessed},
                               {"found", found}});
  return *witnessed;  // Numbers are never used twice.
}

// Empty files count as missing: a file system that lost its newest changes may leave them.
bool HasBytes(const std::string& path) {
  std::error_code none;
  return std::filesystem::file_size(path, none) > 0 && !none;
}

// Refuses to make a store where one has been. Its marker or a database's log shows that. (Nothing
// else does: `init` and `token` come before the first start, which may fail and be repeated.)
absl::Status CheckNoneIsLost(const std::string& directory, const std::string& path,
                             const Witness& witness, const StoreRecovery& recovery) {
  if (HasBytes(path) || witness.newest()) return absl::OkStatus();
  std::string found;
  if (Exists(absl::StrCat(directory, "/", kMarker))) found = kMarker;
  if (HasBytes(path + "-wal")) found = "store.db-wal";
  if (found.empty()) return absl::OkStatus();
  if (!recovery.accept_loss) {
    return DamagedStore(
        path, absl::StrCat("the file and its witness are missing or empty, although `", found,
                           "` beside them shows that a controller has kept jobs here",
                           found == kMarker ? "" : ", or that its first start failed",
                           " (--accept-loss starts with no jobs)"));
  }
  LogWarning("loss_accepted", {{"store", path}, {"found", found}, {"missing", "all of it"}});
  // Without its database nothing can be read from a log, and SQLite would remove it.
  if (found != "store.db-wal") return absl::OkStatus();
  return ReplaceFile(path + "-wal", path + "-wal.lost");
}

}  // namespace

absl::Status WithNewestBackup(const absl::Status& status, const std::string& backup_directory,
                              absl::Time now) {
  if (!absl::IsDataLoss(status) || backup_directory.empty()) return status;
  const std::vector<std::string> backups = Backups(backup_directory, now);
  return absl::DataLossError(absl::StrCat(
      status.message(), "; the newest backup is ",
      backups.empty() ? "none: there is none in " + backup_directory : backups.back()));
}

absl::StatusOr<StoreFiles> OpenStoreFiles(const std::string& directory,
                                          const StoreRecovery& recovery) {
  const std::string path = directory + "/store.db";
  ASSIGN_OR_RETURN(std::unique_ptr<Witness> witness, Witness::Load(directory + "/witness"));
  RETURN_IF_ERROR(CheckNoneIsLost(directory, path, *witness, recovery));
  ASSIGN_OR_RETURN(const uint64_t repaired, witness->RepairLog(path + "-wal"));
  if (repaired > 0) LogWarning("store_log_repaired", {{"store", path}, {"bytes", repaired}});
  ASSIGN_OR_RETURN(Database database, Database::Open(path, witness.get()));
  database.KeepLogOnClose(true);
  ASSIGN_OR_RETURN(int version, SchemaVersion(database, path));
  if (version > 0 && !GuardedDisk::ChecksPages(database.handle())) {
    if (version >= kGuardedVersion || witness->newest().value_or(0) > 0) {
      return DamagedStore(path, "its header is wrong");
    }
    RETURN_IF_ERROR(RebuildWithChecksums(std::move(database), path));
    ASSIGN_OR_RETURN(database, Database::Open(path, witness.get()));
    database.KeepLogOnClose(true);
  }
  ASSIGN_OR_RETURN(const uint64_t transactions,
                   CompareWithWitness(database, path, *witness, version, recovery.accept_loss));
  database.KeepLogOnClose(false);
  RETURN_IF_ERROR(database.Execute("PRAGMA wal_checkpoint(TRUNCATE)"));
  const auto damaged = GuardedDisk::DamagedPages(database.handle(), kPagesAtStart);
  if (!damaged.ok()) return DamagedOrUnreadable(path, damaged.status());
  if (!damaged->empty()) RETURN_IF_ERROR(Judge(database, path, *damaged, version));
  RETURN_IF_ERROR(MigrateSchema(database, version));
  RETURN_IF_ERROR(
      database.Execute(absl::StrCat("UPDATE meta SET value = ", transactions,
                                    " WHERE key = 'transactions' AND value < ", transactions)
                           .c_str()));
  RETURN_IF_ERROR(database.Execute("PRAGMA wal_checkpoint(TRUNCATE)"));
  witness->Start(transactions);
  const std::string marker = absl::StrCat(directory, "/", kMarker);
  if (!Exists(marker)) {
    RETURN_IF_ERROR(WriteFileAtomic(marker, "A controller has kept jobs here.\n"));
  }
  ASSIGN_OR_RETURN(Database reader, Database::Open(path));
  reader.disk().Tolerate({damaged->begin(), damaged->end()});
  return StoreFiles{std::move(witness), std::move(database), std::move(reader), damaged->size()};
}

}  // namespace trainyard::controller
