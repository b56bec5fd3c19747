// The two handles of SQLite's C interface, owned, with errors as Status.

#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "controller/store/guarded_disk.h"

namespace trainyard::controller {

// Move-only. A parameter index starts at 1, a column at 0, as in SQLite. Not thread-safe.
class Statement {
 public:
  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, double value);  // NaN is stored as NULL.
  Statement& BindText(int index, absl::string_view value);
  Statement& BindBlob(int index, absl::string_view value);
  Statement& BindNull(int index);

  absl::Status Run();           // To the end, rows dropped; then ready for the next use.
  absl::StatusOr<bool> Next();  // True: a row is there. False: no more, ready for the next use.
  void Reset();

  int64_t Int(int column) const;
  double Real(int column) const;  // NULL reads as NaN.
  bool IsNull(int column) const;
  std::string Text(int column) const;  // Or the blob's bytes.

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  Database(Database&&) = default;
  Database& operator=(Database&& other) noexcept {
    db_ = std::move(other.db_);  // The old connection goes before its disk.
    disk_ = std::move(other.disk_);
    return *this;
  }

  // Errors say the path and what SQLite says: DATA_LOSS where the file is damaged or is no
  // database, RESOURCE_EXHAUSTED where the disk is full.
  // `witness` (null: none) hears of this connection's transactions, and outlives it.
  static absl::StatusOr<Database> Open(const std::string& path, Witness* witness = nullptr);

  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  absl::StatusOr<int64_t> QueryInt(const char* sql);
  absl::StatusOr<std::string> QueryText(const char* sql);

  // Leaves the log as it is when this connection closes, so that a refusal to start changes
  // nothing.
  void KeepLogOnClose(bool keep);
  int64_t rows_changed() const;  // Since it was opened.
  GuardedDisk& disk() { return *disk_; }
  sqlite3* handle() { return db_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  Database(std::unique_ptr<GuardedDisk> disk, sqlite3* db) : disk_(std::move(disk)), db_(db) {}
  std::unique_ptr<GuardedDisk> disk_;  // Outlives the connection.
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace trainyard::controller
