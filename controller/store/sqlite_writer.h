// Writes batches into the tables. It has one connection, and one thread uses it.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "controller/store/sqlite.h"
#include "controller/store/store.h"
#include "controller/store/witness.h"

namespace trainyard::controller {

class SqliteWriter {
 public:
  // `witness` is the one that the database was opened with; null: there is none.
  static absl::StatusOr<std::unique_ptr<SqliteWriter>> Create(Database database,
                                                              const StoreLimits& limits,
                                                              Witness* witness = nullptr);

  absl::Status Begin();
  absl::StatusOr<uint64_t> NextGeneration();  // In its own transaction.
  absl::Status Put(const WriteBatch& batch);
  absl::Status Commit();  // OK: the transaction is durable.
  void Rollback();
  uint64_t transactions() const { return transactions_; }  // Committed since the store exists.

 private:
  SqliteWriter(Database database, const StoreLimits& limits, Witness* witness,
               uint64_t transactions)
      : database_(std::move(database)),
        limits_(limits),
        witness_(witness),
        transactions_(transactions) {}

  // Returns the prepared statement; prepares each only once.
  absl::StatusOr<Statement*> Cached(const char* sql);
  absl::Status Execute(const char* sql);
  absl::Status ForgetOldJobs();
  absl::Status PutStep(const WriteBatch::Step& step);
  absl::Status PutEvent(const WriteBatch::Event& event);
  absl::Status PutLog(const WriteBatch::Log& log);
  absl::Status PutAudit(AuditEntry entry);
  // Returns the next row number of a job in events or logs. Reads the table only once for each job.
  absl::StatusOr<int64_t> NextRow(std::map<uint64_t, int64_t>& next, const char* max_sql,
                                  uint64_t number);

  Database database_;
  const StoreLimits limits_;
  Witness* const witness_;
  uint64_t transactions_;     // The number of the newest committed transaction.
  int64_t rows_changed_ = 0;  // Before the current transaction.
  std::map<const char*, Statement> statements_;
  std::map<uint64_t, int64_t> next_event_, next_log_;
  std::optional<AuditEntry> newest_audit_;  // Number and hash; absent: not read yet.
  uint64_t new_jobs_ = 0;                   // Since the store was opened.
};

}  // namespace trainyard::controller
