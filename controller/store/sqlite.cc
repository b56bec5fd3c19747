#include "controller/store/sqlite.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "controller/store/row_checksum.h"

namespace trainyard::controller {
namespace {

constexpr int kBusyMilliseconds = 10'000;

absl::Status ErrorOf(sqlite3* db, int code, absl::string_view doing) {
  const char* file = sqlite3_db_filename(db, "main");
  const std::string text = absl::StrCat("store ", file == nullptr ? "" : file, ": cannot ", doing,
                                        ": ", sqlite3_errmsg(db));
  if (code == SQLITE_IOERR_DATA) {
    return absl::DataLossError(absl::StrCat("store ", file == nullptr ? "" : file,
                                            ": a page differs from its checksum (the log says "
                                            "which)"));
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(text);
    case SQLITE_IOERR:
      return absl::UnavailableError(text);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace

Statement& Statement::Bind(int index, int64_t value) {
  CHECK(sqlite3_bind_int64(statement_.get(), index, value) == SQLITE_OK) << index;
  return *this;
}

Statement& Statement::Bind(int index, double value) {
  CHECK(sqlite3_bind_double(statement_.get(), index, value) == SQLITE_OK) << index;
  return *this;
}

Statement& Statement::BindText(int index, absl::string_view value) {
  CHECK(sqlite3_bind_text64(statement_.get(), index, value.data(), value.size(), SQLITE_TRANSIENT,
                            SQLITE_UTF8) == SQLITE_OK)
      << index;
  return *this;
}

Statement& Statement::BindBlob(int index, absl::string_view value) {
  // A null pointer would be stored as NULL, but an empty blob is a value.
  CHECK(sqlite3_bind_blob64(statement_.get(), index, value.empty() ? "" : value.data(),
                            value.size(), SQLITE_TRANSIENT) == SQLITE_OK)
      << index;
  return *this;
}

Statement& Statement::BindNull(int index) {
  CHECK(sqlite3_bind_null(statement_.get(), index) == SQLITE_OK) << index;
  return *this;
}

absl::Status Statement::Run() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Next());
    if (!row) return absl::OkStatus();
  }
}

absl::StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  absl::Status status;
  if (code != SQLITE_DONE) {
    status = ErrorOf(sqlite3_db_handle(statement_.get()), code, sqlite3_sql(statement_.get()));
  }
  Reset();
  if (!status.ok()) return status;
  return false;
}

void Statement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::Real(int column) const {
  return IsNull(column) ? std::numeric_limits<double>::quiet_NaN()
                        : sqlite3_column_double(statement_.get(), column);
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::string Statement::Text(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? "" : std::string(static_cast<const char*>(data), size_t(bytes));
}

absl::StatusOr<Database> Database::Open(const std::string& path, Witness* witness) {
  sqlite3* raw = nullptr;
  auto disk = std::make_unique<GuardedDisk>(witness);
  const int code = sqlite3_open_v2(path.c_str(), &raw,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                   disk->name());
  Database database(std::move(disk), raw);  // Even a failed opening returns a handle to close.
  if (code != SQLITE_OK) return ErrorOf(raw, code, "open");
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyMilliseconds);
  RegisterRowChecksum(raw);
  // This applies to new files and to those that VACUUM writes. Existing files stay as they are.
  int reserved = kPageChecksumBytes;
  sqlite3_file_control(raw, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
  return database;
}

absl::Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_.get(), code, sql);
}

absl::StatusOr<Statement> Database::Prepare(absl::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(db_.get(), sql.data(), int(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return ErrorOf(db_.get(), code, sql);
  return Statement(raw);
}

absl::StatusOr<int64_t> Database::QueryInt(const char* sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Next());
  return row ? statement.Int(0) : 0;
}

absl::StatusOr<std::string> Database::QueryText(const char* sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Next());
  return row ? statement.Text(0) : std::string();
}

void Database::KeepLogOnClose(bool keep) {
  sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(keep), nullptr);
}

int64_t Database::rows_changed() const { return sqlite3_total_changes64(db_.get()); }

}  // namespace trainyard::controller
