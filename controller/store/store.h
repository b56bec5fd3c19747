// Everything that the controller remembers when it dies. The interface is small, so that another
// database can implement it. Implementations are thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/jobs/job.h"
#include "controller/jobs/step_record.h"
#include "security/audit_entry.h"

namespace trainyard::controller {

// A job's row. Spec, config and facts are written once; state and body may change.
struct StoredJob {
  uint64_t number = 0;
  JobState state = JobState::kQueued;
  std::string spec;
  std::string config;
  std::string facts;
  std::string body;
  bool damaged = false;  // The checksum is wrong, so nothing in this row can be relied on.
};

struct StoredRequest {
  std::string request_id;
  uint64_t number = 0;
};

// The changes of one batch become durable together, or none of them does.
struct WriteBatch {
  std::vector<StoredJob> new_jobs;
  std::vector<StoredRequest> new_requests;
  std::vector<StoredJob> changed_jobs;  // Only number, state and body are read.
  struct Event {
    uint64_t number;
    EventRecord event;
  };
  std::vector<Event> events;
  struct Step {
    uint64_t number;
    JobStep record;
  };
  std::vector<Step> steps;  // Replace the row of the same job and step.
  struct Log {
    uint64_t number;
    LogRecord line;
  };
  std::vector<Log> logs;
  std::vector<AuditEntry> audit;  // The store sets number and hash.
};

// What to do with a batch that cannot be written now, for example because the disk is full.
enum class OnFailure {
  kReport,  // Report the error: a caller waits for the answer, and can try again.
  kRetry,   // Keep the batch and retry until it succeeds, because its events have happened.
  kDrop,    // Drop it: log lines are not worth keeping.
};

using WriteDone = std::function<void(const absl::Status&)>;

// Tells the caller of a Write that nothing was written. Null: there is nothing to tell.
using Refusal = std::function<void()>;

// Selects the jobs of a list. An empty member selects all.
struct JobFilter {
  std::vector<JobState> states = {};
  std::string name_space = {};  // Excludes damaged rows, whose namespace is unknown.
  std::string name = {};        // A part of the jobs' names.
};

class Store {
 public:
  virtual ~Store() = default;

  // Queues the batch. Batches become durable in the order of the calls. Batches that are queued
  // together share one sync of the disk. `done` runs once the batch is durable or has failed, in
  // the same order, on the store's thread. It must be quick. After Close no batch is queued, and
  // while the store is full only batches with kRetry are queued. If the batch is not queued, Write
  // returns a refusal, which runs `done` with UNAVAILABLE. The caller must run the refusal when it
  // holds no lock that `done` takes. Callers call Write while they hold their lock, which keeps the
  // batches in order.
  [[nodiscard]] virtual Refusal Write(WriteBatch batch, OnFailure on_failure, WriteDone done) = 0;

  // The disk is full or slow, so more batches wait than this process should hold in memory.
  virtual bool full() const = 0;

  // Writes the queued batches. Afterwards no `done` runs on the store's thread. Queries still work.
  virtual void Close() = 0;

  // Grows with every opening of the store, durably, so that revisions grow across restarts.
  virtual uint64_t generation() const = 0;

  // Every row that is read is compared with its checksum. A query that meets a damaged row returns
  // DATA_LOSS, and the message names the table and the job. Lists of jobs mark the row instead.

  // The jobs that are not terminal, and all damaged rows of jobs, oldest first. Reads all jobs.
  virtual absl::StatusOr<std::vector<StoredJob>> LiveJobs() = 0;
  virtual absl::StatusOr<StoredJob> GetJob(uint64_t number) = 0;  // NOT_FOUND.
  // Newest first, with numbers below `before` (0: all).
  virtual absl::StatusOr<std::vector<StoredJob>> ListJobs(const JobFilter& filter, uint64_t before,
                                                          size_t limit) = 0;
  // NOT_FOUND: no job was made with this request_id. DATA_LOSS: rows are damaged, so nobody knows.
  virtual absl::StatusOr<uint64_t> FindRequest(const std::string& request_id) = 0;
  virtual absl::StatusOr<uint64_t> NewestJob() = 0;  // 0: none.
  // Indexed by the state's number.
  virtual absl::StatusOr<std::vector<uint64_t>> CountByState() = 0;

  virtual absl::StatusOr<std::vector<EventRecord>> ReadEvents(uint64_t number) = 0;
  // Returns the newest step, of the newest attempt that has steps or is in `resumes`
  // (Job::resumes), and all earlier steps that are still open. Open steps are those that not every
  // rank has reported, those that are missing, and those that only an attempt before the one that
  // ran them again (by `resumes`) has reported. The last two kinds have a number and nothing else.
  virtual absl::StatusOr<std::vector<JobStep>> OpenSteps(uint64_t number,
                                                         const std::vector<Resume>& resumes) = 0;
  // The last step that this attempt finished. NOT_FOUND: there is none.
  virtual absl::StatusOr<JobStep> LastStep(uint64_t number, uint64_t epoch) = 0;
  // The newest validated step up to `up_to` that counts (SupersededBy). NOT_FOUND: there is none.
  virtual absl::StatusOr<JobStep> LastValidated(uint64_t number, uint64_t up_to,
                                                const std::vector<Resume>& resumes) = 0;
  virtual absl::StatusOr<double> SumStepSeconds(uint64_t number) = 0;  // Of finished steps.
  // The steps after `after_step`, in order, up to the newest complete step.
  virtual absl::StatusOr<std::vector<JobStep>> ReadSteps(uint64_t number, uint64_t after_step,
                                                         size_t limit) = 0;
  // For each of `wanted`, which is sorted, returns the first step at or after it, each step once
  // and none after the newest complete step. Reads that many rows, however long the job's history
  // is.
  virtual absl::StatusOr<std::vector<JobStep>> SampleSteps(uint64_t number,
                                                           const std::vector<uint64_t>& wanted) = 0;
  struct LogPage {
    std::vector<LogRecord> lines;
    std::vector<uint64_t> numbers;  // Of the lines, within their job. The first line ever is 1.
    uint64_t last = 0;              // The cursor for the next page.
  };
  // Lines after the cursor (0: from the oldest that is kept), oldest first. rank < 0: of all ranks.
  virtual absl::StatusOr<LogPage> ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                           size_t limit) = 0;
  // The newest lines, sorted from old to new. rank < 0: of all ranks.
  virtual absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t number, int64_t rank,
                                                          size_t limit) = 0;
  // Entries after `after`, oldest first. The reader checks the hashes.
  virtual absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit) = 0;
  virtual absl::StatusOr<uint64_t> NewestAudit() = 0;  // 0: none.
};

// How much history a store keeps, and how much may wait to be written before the store is full. The
// oldest history is removed first.
struct StoreLimits {
  uint64_t ended_jobs = 100'000;  // Including their history and request ids.
  uint64_t steps_per_job = 200'000;
  uint64_t log_lines_per_job = 20'000;
  uint64_t events_per_job = 2'000;
  uint64_t audit_entries = kAuditEntriesKept;
  uint64_t waiting_bytes = 64 << 20;
};

}  // namespace trainyard::controller
