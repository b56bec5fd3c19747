// The store in an embedded SQLite file: WAL, synchronous FULL, one writing thread. All batches that
// wait when the thread begins a transaction go into this transaction and share its sync.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "controller/store/sqlite_reader.h"
#include "controller/store/sqlite_writer.h"
#include "controller/store/state_lock.h"
#include "controller/store/store.h"
#include "controller/store/store_files.h"

namespace trainyard::controller {

class SqliteStore final : public Store {
 public:
  // Called on the store's thread after each attempt at a transaction, with its duration.
  using OnCommit = std::function<void(absl::Duration)>;

  // Opens DIRECTORY/store.db, and owns the directory until the store is destroyed. Makes the
  // directory if it is missing. FAILED_PRECONDITION: another process owns the directory, or a newer
  // Trainyard or another program wrote the file. DATA_LOSS: the file is damaged as a whole, or
  // acknowledged transactions are missing (store_files.h).
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& directory,
                                                           const StoreLimits& limits = {},
                                                           const StoreRecovery& recovery = {},
                                                           OnCommit on_commit = {});
  ~SqliteStore() override;

  Refusal Write(WriteBatch batch, OnFailure on_failure, WriteDone done) override;
  bool full() const override;
  void Close() override;
  size_t damaged_pages() const { return settings_.damaged_pages; }  // Found at opening.
  uint64_t generation() const override { return settings_.generation; }

  absl::StatusOr<std::vector<StoredJob>> LiveJobs() override { return reader_.LiveJobs(); }
  absl::StatusOr<StoredJob> GetJob(uint64_t number) override { return reader_.GetJob(number); }
  absl::StatusOr<std::vector<StoredJob>> ListJobs(const JobFilter& filter, uint64_t before,
                                                  size_t limit) override {
    return reader_.ListJobs(filter, before, limit);
  }
  absl::StatusOr<uint64_t> FindRequest(const std::string& request_id) override {
    return reader_.FindRequest(request_id);
  }
  absl::StatusOr<uint64_t> NewestJob() override { return reader_.NewestJob(); }
  absl::StatusOr<std::vector<uint64_t>> CountByState() override { return reader_.CountByState(); }
  absl::StatusOr<std::vector<EventRecord>> ReadEvents(uint64_t number) override {
    return reader_.ReadEvents(number);
  }
  absl::StatusOr<std::vector<JobStep>> OpenSteps(uint64_t number,
                                                 const std::vector<Resume>& resumes) override {
    return reader_.OpenSteps(number, resumes);
  }
  absl::StatusOr<JobStep> LastStep(uint64_t number, uint64_t epoch) override {
    return reader_.LastStep(number, epoch);
  }
  absl::StatusOr<JobStep> LastValidated(uint64_t number, uint64_t up_to,
                                        const std::vector<Resume>& resumes) override {
    return reader_.LastValidated(number, up_to, resumes);
  }
  absl::StatusOr<double> SumStepSeconds(uint64_t number) override {
    return reader_.SumStepSeconds(number);
  }
  absl::StatusOr<std::vector<JobStep>> ReadSteps(uint64_t number, uint64_t after_step,
                                                 size_t limit) override {
    return reader_.ReadSteps(number, after_step, limit);
  }
  absl::StatusOr<LogPage> ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                   size_t limit) override {
    return reader_.ReadLogs(number, after, rank, limit);
  }
  absl::StatusOr<std::vector<JobStep>> SampleSteps(uint64_t number,
                                                   const std::vector<uint64_t>& wanted) override {
    return reader_.SampleSteps(number, wanted);
  }
  absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t number, int64_t rank,
                                                  size_t limit) override {
    return reader_.LastLogs(number, rank, limit);
  }
  absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit) override {
    return reader_.ReadAudit(after, limit);
  }
  absl::StatusOr<uint64_t> NewestAudit() override { return reader_.NewestAudit(); }

 private:
  struct Pending {
    WriteBatch batch;
    OnFailure on_failure;
    WriteDone done;
    uint64_t bytes;  // Memory of the batch, estimated.
  };

  struct Settings {
    uint64_t generation;
    uint64_t max_waiting_bytes;
    size_t damaged_pages;
    OnCommit on_commit;  // May be empty.
  };

  SqliteStore(StateLock lock, std::unique_ptr<Witness> witness,
              std::unique_ptr<SqliteWriter> writer, Database reader, Settings settings);
  void Run();
  absl::Status WriteTogether(const std::deque<Pending>& group);
  // Writes the group and runs the callbacks. Leaves the batches that must be tried again in `kept`.
  // If there are any, returns why they failed.
  absl::Status WriteGroup(std::deque<Pending> group, bool stopping, std::deque<Pending>& kept);
  void Settle(Pending pending, const absl::Status& status, bool stopping,
              std::deque<Pending>& kept);

  const StateLock lock_;
  const Settings settings_;
  const std::unique_ptr<Witness> witness_;      // Must outlive the writer, which uses it.
  const std::unique_ptr<SqliteWriter> writer_;  // Used by the store's thread alone.
  SqliteReader reader_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  // Of batches that are queued, being written, or kept.
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
