// The store's queries. They use a connection of their own, because readers of a WAL database do not
// wait for the writer.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/store/sqlite.h"
#include "controller/store/store.h"

namespace trainyard::controller {

// The query of ListJobs. ?1: only jobs with smaller numbers. ?2: the limit. ?3: the namespace, and
// ?4: a part of the name, if the filter has them. The cost does not grow with the number of stored
// jobs.
std::string ListJobsSql(const JobFilter& filter);

// Thread-safe: runs one query at a time. Store documents what each function returns.
class SqliteReader {
 public:
  explicit SqliteReader(Database database) : database_(std::move(database)) {}

  // Reads every request, and returns how many rows are damaged. As long as some are damaged,
  // FindRequest returns DATA_LOSS for a request that it does not find.
  absl::StatusOr<uint64_t> CheckRequests();
  void ForgetDamagedRequests();

  absl::StatusOr<std::vector<StoredJob>> LiveJobs();
  absl::StatusOr<StoredJob> GetJob(uint64_t number);
  absl::StatusOr<std::vector<StoredJob>> ListJobs(const JobFilter& filter, uint64_t before,
                                                  size_t limit);
  absl::StatusOr<uint64_t> FindRequest(const std::string& request_id);
  absl::StatusOr<uint64_t> NewestJob();
  absl::StatusOr<std::vector<uint64_t>> CountByState();
  absl::StatusOr<std::vector<EventRecord>> ReadEvents(uint64_t number);
  absl::StatusOr<std::vector<JobStep>> OpenSteps(uint64_t number,
                                                 const std::vector<Resume>& resumes);
  absl::StatusOr<JobStep> LastStep(uint64_t number, uint64_t epoch);
  absl::StatusOr<JobStep> LastValidated(uint64_t number, uint64_t up_to,
                                        const std::vector<Resume>& resumes);
  absl::StatusOr<double> SumStepSeconds(uint64_t number);
  absl::StatusOr<std::vector<JobStep>> ReadSteps(uint64_t number, uint64_t after_step,
                                                 size_t limit);
  absl::StatusOr<Store::LogPage> ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                          size_t limit);
  absl::StatusOr<std::vector<JobStep>> SampleSteps(uint64_t number,
                                                   const std::vector<uint64_t>& wanted);
  absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t number, int64_t rank, size_t limit);
  absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit);
  absl::StatusOr<uint64_t> NewestAudit();

 private:
  absl::StatusOr<std::vector<StoredJob>> ReadJobs(Statement statement);
  absl::StatusOr<std::vector<JobStep>> ReadSteps(Statement statement, uint64_t number);
  // The parts of OpenSteps: the number of the newest step, the steps that are missing, and the
  // steps that were only reported by an attempt before the one that ran them again.
  absl::StatusOr<uint64_t> NewestStep(uint64_t number, const std::vector<Resume>& resumes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddMissing(uint64_t number, uint64_t newest, std::vector<JobStep>& steps)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddMoot(uint64_t number, uint64_t newest, const std::vector<Resume>& resumes,
                       std::vector<JobStep>& steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Database database_ ABSL_GUARDED_BY(mutex_);
  uint64_t damaged_requests_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::controller
