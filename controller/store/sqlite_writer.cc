#include "controller/store/sqlite_writer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "controller/store/step_row.h"

namespace trainyard::controller {
namespace {

// Old rows are removed in groups of this many.
constexpr int64_t kTrimEvery = 256;

constexpr size_t kMaxCachedRowNumbers = 10'000;

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteWriter>> SqliteWriter::Create(Database database,
                                                                   const StoreLimits& limits,
                                                                   Witness* witness) {
  RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = FULL"));
  ASSIGN_OR_RETURN(const int64_t transactions,
                   database.QueryInt("SELECT value FROM meta WHERE key = 'transactions'"));
  return std::unique_ptr<SqliteWriter>(
      new SqliteWriter(std::move(database), limits, witness, uint64_t(transactions)));
}

absl::Status SqliteWriter::Begin() {
  if (witness_ != nullptr) witness_->Begin();
  rows_changed_ = database_.rows_changed();
  return Execute("BEGIN IMMEDIATE");
}

absl::Status SqliteWriter::Commit() {
  // A transaction that changes nothing needs no number and no sync.
  if (database_.rows_changed() == rows_changed_) return Execute("COMMIT");
  ASSIGN_OR_RETURN(Statement * count,
                   Cached("UPDATE meta SET value = ? WHERE key = 'transactions'"));
  RETURN_IF_ERROR(count->Bind(1, int64_t(transactions_ + 1)).Run());
  if (witness_ != nullptr) witness_->Expect(transactions_ + 1);
  RETURN_IF_ERROR(Execute("COMMIT"));
  ++transactions_;
  return absl::OkStatus();
}

void SqliteWriter::Rollback() {
  // The numbers of the rolled back rows are free again. A failed COMMIT may have rolled back by
  // itself.
  next_event_.clear();
  next_log_.clear();
  newest_audit_.reset();
  (void)database_.Execute("ROLLBACK");
  if (witness_ != nullptr) witness_->Forget();
}

absl::StatusOr<uint64_t> SqliteWriter::NextGeneration() {
  absl::Status status = Begin();
  if (status.ok()) {
    status = database_.Execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'");
  }
  if (status.ok()) status = Commit();
  if (!status.ok()) Rollback();
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const int64_t generation,
                   database_.QueryInt("SELECT value FROM meta WHERE key = 'generation'"));
  return uint64_t(generation);
}

absl::StatusOr<Statement*> SqliteWriter::Cached(const char* sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    ASSIGN_OR_RETURN(Statement statement, database_.Prepare(sql));
    found = statements_.emplace(sql, std::move(statement)).first;
  }
  return &found->second;
}

absl::Status SqliteWriter::Execute(const char* sql) {
  ASSIGN_OR_RETURN(Statement * statement, Cached(sql));
  return statement->Run();
}

absl::Status SqliteWriter::Put(const WriteBatch& batch) {
  for (const StoredJob& job : batch.new_jobs) {
    ASSIGN_OR_RETURN(
        Statement * insert,
        Cached("INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, row_checksum(?1, ?3, ?4, ?5), "
               "row_checksum(?1, ?2, ?6))"));
    insert->Bind(1, int64_t(job.number)).Bind(2, int64_t(job.state)).BindBlob(3, job.spec);
    RETURN_IF_ERROR(
        insert->BindText(4, job.config).BindText(5, job.facts).BindText(6, job.body).Run());
    if (++new_jobs_ % kTrimEvery == 0) RETURN_IF_ERROR(ForgetOldJobs());
  }
  for (const StoredRequest& request : batch.new_requests) {
    ASSIGN_OR_RETURN(Statement * insert,
                     Cached("INSERT INTO requests VALUES (?1, ?2, row_checksum(?1, ?2))"));
    RETURN_IF_ERROR(insert->BindText(1, request.request_id).Bind(2, int64_t(request.number)).Run());
  }
  for (const StoredJob& job : batch.changed_jobs) {
    ASSIGN_OR_RETURN(Statement * update,
                     Cached("UPDATE jobs SET state = ?1, body = ?2, state_checksum = "
                            "row_checksum(number, ?1, ?2) WHERE number = ?3"));
    RETURN_IF_ERROR(update->Bind(1, int64_t(job.state))
                        .BindText(2, job.body)
                        .Bind(3, int64_t(job.number))
                        .Run());
  }
  for (const WriteBatch::Event& event : batch.events) RETURN_IF_ERROR(PutEvent(event));
  for (const WriteBatch::Step& step : batch.steps) RETURN_IF_ERROR(PutStep(step));
  for (const WriteBatch::Log& log : batch.logs) RETURN_IF_ERROR(PutLog(log));
  for (const AuditEntry& entry : batch.audit) RETURN_IF_ERROR(PutAudit(entry));
  return absl::OkStatus();
}

absl::Status SqliteWriter::ForgetOldJobs() {
  ASSIGN_OR_RETURN(Statement * newest_too_old,
                   Cached("SELECT number FROM jobs WHERE state >= ? ORDER BY number DESC LIMIT 1 "
                          "OFFSET ?"));
  newest_too_old->Bind(1, int64_t(JobState::kSucceeded)).Bind(2, int64_t(limits_.ended_jobs));
  ASSIGN_OR_RETURN(const bool any, newest_too_old->Next());
  if (!any) return absl::OkStatus();
  const int64_t last = newest_too_old->Int(0);
  newest_too_old->Reset();
  ASSIGN_OR_RETURN(
      Statement * old,
      Cached("SELECT number, checksum = row_checksum(number, spec, config, facts) AND "
             "state_checksum = row_checksum(number, state, body) FROM jobs WHERE state "
             ">= ? AND number <= ?"));
  old->Bind(1, int64_t(JobState::kSucceeded)).Bind(2, last);
  std::vector<int64_t> numbers;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, old->Next());
    if (!row) break;
    // A damaged row stays, because nobody knows whether this job has ended.
    if (old->Int(1) != 0) numbers.push_back(old->Int(0));
  }
  for (const int64_t number : numbers) {
    for (const char* sql :
         {"DELETE FROM steps WHERE number = ?", "DELETE FROM logs WHERE number = ?",
          "DELETE FROM events WHERE number = ?", "DELETE FROM requests WHERE number = ?",
          "DELETE FROM jobs WHERE number = ?"}) {
      ASSIGN_OR_RETURN(Statement * forget, Cached(sql));
      RETURN_IF_ERROR(forget->Bind(1, number).Run());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteWriter::NextRow(std::map<uint64_t, int64_t>& next,
                                              const char* max_sql, uint64_t number) {
  auto found = next.find(number);
  if (found == next.end()) {
    if (next.size() >= kMaxCachedRowNumbers) next.clear();
    ASSIGN_OR_RETURN(Statement * newest, Cached(max_sql));
    newest->Bind(1, int64_t(number));
    ASSIGN_OR_RETURN(const bool row, newest->Next());
    found = next.emplace(number, row ? newest->Int(0) + 1 : 1).first;
    newest->Reset();
  }
  return found->second++;
}

absl::Status SqliteWriter::PutEvent(const WriteBatch::Event& event) {
  ASSIGN_OR_RETURN(
      const int64_t n,
      NextRow(next_event_, "SELECT max(n) FROM events WHERE number = ?", event.number));
  ASSIGN_OR_RETURN(Statement * insert, Cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
                                              "row_checksum(?1, ?2, ?3, ?4, ?5, ?6))"));
  insert->Bind(1, int64_t(event.number)).Bind(2, n).Bind(3, absl::ToUnixMicros(event.event.time));
  insert->Bind(4, int64_t(event.event.type)).Bind(5, int64_t(event.event.epoch));
  RETURN_IF_ERROR(insert->BindText(6, event.event.message).Run());
  if (n % kTrimEvery != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement * trim, Cached("DELETE FROM events WHERE number = ? AND n <= ?"));
  return trim->Bind(1, int64_t(event.number)).Bind(2, n - int64_t(limits_.events_per_job)).Run();
}

absl::Status SqliteWriter::PutLog(const WriteBatch::Log& log) {
  ASSIGN_OR_RETURN(const int64_t n,
                   NextRow(next_log_, "SELECT max(n) FROM logs WHERE number = ?", log.number));
  ASSIGN_OR_RETURN(Statement * insert, Cached("INSERT INTO logs VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
                                              "row_checksum(?1, ?2, ?3, ?4, ?5, ?6))"));
  insert->Bind(1, int64_t(log.number)).Bind(2, n).Bind(3, absl::ToUnixMicros(log.line.time));
  insert->Bind(4, int64_t(log.line.epoch)).Bind(5, int64_t(log.line.rank));
  RETURN_IF_ERROR(insert->BindText(6, log.line.text).Run());
  if (n % kTrimEvery != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement * trim, Cached("DELETE FROM logs WHERE number = ? AND n <= ?"));
  return trim->Bind(1, int64_t(log.number)).Bind(2, n - int64_t(limits_.log_lines_per_job)).Run();
}

absl::Status SqliteWriter::PutAudit(AuditEntry entry) {
  if (!newest_audit_) {
    ASSIGN_OR_RETURN(Statement * newest,
                     Cached("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1"));
    ASSIGN_OR_RETURN(const bool row, newest->Next());
    newest_audit_.emplace();
    if (row)
      newest_audit_->number = uint64_t(newest->Int(0)), newest_audit_->hash = newest->Text(1);
    newest->Reset();
  }
  entry.number = newest_audit_->number + 1;
  entry.hash = ChainedHash(newest_audit_->hash, entry);
  ASSIGN_OR_RETURN(Statement * insert,
                   Cached("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert->Bind(1, int64_t(entry.number)).Bind(2, absl::ToUnixMicros(entry.time));
  int column = 3;
  for (const std::string* text :
       {&entry.caller, &entry.credential, &entry.peer, &entry.method, &entry.target,
        &entry.name_space, &entry.detail, &entry.outcome, &entry.message, &entry.hash}) {
    insert->BindText(column++, *text);
  }
  RETURN_IF_ERROR(insert->Run());
  newest_audit_ = std::move(entry);
  if (newest_audit_->number % kTrimEvery != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement * trim, Cached("DELETE FROM audit WHERE n <= ?"));
  return trim->Bind(1, int64_t(newest_audit_->number) - int64_t(limits_.audit_entries)).Run();
}

absl::Status SqliteWriter::PutStep(const WriteBatch::Step& step) {
  const JobStep& r = step.record;
  static const std::string kInsert = InsertStep();
  ASSIGN_OR_RETURN(Statement * insert, Cached(kInsert.c_str()));
  BindStep(*insert, step.number, r);
  RETURN_IF_ERROR(insert->Run());
  if (r.step % kTrimEvery != 0 || r.step <= limits_.steps_per_job) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement * trim, Cached("DELETE FROM steps WHERE number = ? AND step <= ?"));
  return trim->Bind(1, int64_t(step.number)).Bind(2, int64_t(r.step - limits_.steps_per_job)).Run();
}

}  // namespace trainyard::controller
