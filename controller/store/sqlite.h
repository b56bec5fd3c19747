// Owns the two handles of SQLite's C interface, and reports errors as Status.

#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "controller/store/guarded_disk.h"

namespace trainyard::controller {

// Move-only. Parameters are counted from 1 and columns from 0, as in SQLite. Not thread-safe.
class Statement {
 public:
  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, double value);  // NaN is stored as NULL.
  Statement& BindText(int index, absl::string_view value);
  Statement& BindBlob(int index, absl::string_view value);
  Statement& BindNull(int index);

  // Runs the statement to its end, drops its rows, and makes it ready for the next use.
  absl::Status Run();
  // Returns true if there is another row. Otherwise the statement is ready for the next use.
  absl::StatusOr<bool> Next();
  void Reset();

  int64_t Int(int column) const;
  double Real(int column) const;  // NULL reads as NaN.
  bool IsNull(int column) const;
  std::string Text(int column) const;  // Also reads a blob's bytes.

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
    db_ = std::move(other.db_);  // The old connection must be closed before its disk is destroyed.
    disk_ = std::move(other.disk_);
    return *this;
  }

  // Opens a connection. `witness` is told of its transactions, and must outlive it; null: there is
  // none. Errors name the path and quote SQLite. DATA_LOSS: the file is damaged, or is no database.
  // RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE, PERMISSION_DENIED: a file cannot be read, be
  // written or be opened, which says nothing of what is in it.
  static absl::StatusOr<Database> Open(const std::string& path, Witness* witness = nullptr);

  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  absl::StatusOr<int64_t> QueryInt(const char* sql);
  absl::StatusOr<std::string> QueryText(const char* sql);

  // Keeps the log when this connection is closed, so that a refused start changes nothing.
  void KeepLogOnClose(bool keep);
  int64_t rows_changed() const;  // Since the connection was opened.
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
