// What the controller remembers across its own death. Small on purpose, so that another database
// can stand behind it. Implementations are thread-safe.

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

// A job's row. Spec, config and facts are written once; state and body change.
struct StoredJob {
  uint64_t number = 0;
  JobState state = JobState::kQueued;
  std::string spec;
  std::string config;
  std::string facts;
  std::string body;
  bool damaged = false;  // Read back with a wrong checksum: nothing in this row can be relied on.
};

struct StoredRequest {
  std::string request_id;
  uint64_t number = 0;
};

// Everything in one batch becomes durable together, or nothing does.
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
    StepRecord record;
  };
  std::vector<Step> steps;  // Replace the row of the same job and step.
  struct Log {
    uint64_t number;
    LogRecord line;
  };
  std::vector<Log> logs;
  std::vector<AuditEntry> audit;  // The store gives number and hash.
};

// What to do with a batch that cannot be written now (disk full).
enum class OnFailure {
  kReport,  // Tell the writer: somebody waits for the answer and can try again.
  kRetry,   // Keep it and try until it succeeds: it has happened, whether stored or not.
  kDrop,    // Not worth keeping (log lines).
};

using WriteDone = std::function<void(const absl::Status&)>;

// Tells a writer that came after Close that nothing was written. Null: nothing to tell.
using Refusal = std::function<void()>;

// Which jobs a list has. Empty: all.
struct JobFilter {
  std::vector<JobState> states = {};
  std::string name_space = {};  // Damaged rows, which may be anybody's, are in none.
  std::string name = {};        // A part of the jobs' names.
};

class Store {
 public:
  virtual ~Store() = default;

  // Queues the batch; while full, only what is to be retried is queued. Batches become durable in
  // the order of the calls, and `done` runs in that order on the store's thread, once the batch is
  // durable or has failed; it must be quick. Batches that are queued together share one sync of the
  // disk. After Close nothing is queued. Where it is not, the refusal that is returned runs `done`
  // with UNAVAILABLE. The caller runs it once it holds no lock that `done` takes; calls from under
  // a lock are what keeps batches in order.
  [[nodiscard]] virtual Refusal Write(WriteBatch batch, OnFailure on_failure, WriteDone done) = 0;

  // More waits to be written than is good for the memory of this process: the disk is full or slow.
  virtual bool full() const = 0;

  // Finishes what is queued; no `done` runs on the store's thread after it. Reading goes on.
  virtual void Close() = 0;

  // Incremented and durable at every opening: makes revisions grow across restarts.
  virtual uint64_t generation() const = 0;

  // Every row that is read is compared with its checksum. A read that meets a damaged row answers
  // DATA_LOSS, and the message names the table and the job; lists of jobs mark the row instead.

  // The jobs that are not terminal, and every damaged row of a job; oldest first. Reads all jobs.
  virtual absl::StatusOr<std::vector<StoredJob>> LiveJobs() = 0;
  virtual absl::StatusOr<StoredJob> GetJob(uint64_t number) = 0;  // NOT_FOUND.
  // Newest first, numbers below `before` (0: all).
  virtual absl::StatusOr<std::vector<StoredJob>> ListJobs(const JobFilter& filter, uint64_t before,
                                                          size_t limit) = 0;
  // NOT_FOUND: no job was made with this request_id. DATA_LOSS: damage leaves that unknown.
  virtual absl::StatusOr<uint64_t> FindRequest(const std::string& request_id) = 0;
  virtual absl::StatusOr<uint64_t> NewestJob() = 0;                  // 0: none.
  virtual absl::StatusOr<std::vector<uint64_t>> CountByState() = 0;  // Index: the state's number.

  virtual absl::StatusOr<std::vector<EventRecord>> ReadEvents(uint64_t number) = 0;
  // The newest step of the newest attempt that has any or is in `resumes` (Job::resumes), and of
  // the steps before that: those that not every rank has reported; and with a number alone, those
  // that are missing, or known only from an attempt before the one that `resumes` says ran them.
  virtual absl::StatusOr<std::vector<StepRecord>> OpenSteps(uint64_t number,
                                                            const std::vector<Resume>& resumes) = 0;
  // The last one that this attempt finished. NOT_FOUND.
  virtual absl::StatusOr<StepRecord> LastStep(uint64_t number, uint64_t epoch) = 0;
  virtual absl::StatusOr<double> SumStepSeconds(uint64_t number) = 0;  // Of finished steps.
  // Beyond `after_step`, in step order, up to the newest complete one.
  virtual absl::StatusOr<std::vector<StepRecord>> ReadSteps(uint64_t number, uint64_t after_step,
                                                            size_t limit) = 0;
  // Of those steps the first at or after each of `wanted`, which grows. Reads as many rows, however
  // long the job's history is.
  virtual absl::StatusOr<std::vector<StepRecord>> SampleSteps(
      uint64_t number, const std::vector<uint64_t>& wanted) = 0;
  struct LogPage {
    std::vector<LogRecord> lines;
    uint64_t last = 0;  // Cursor for the next page.
  };
  // Oldest first beyond the cursor (0: the oldest kept); rank < 0: all ranks.
  virtual absl::StatusOr<LogPage> ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                           size_t limit) = 0;
  // The newest, oldest of them first; rank < 0: of all ranks.
  virtual absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t number, int64_t rank,
                                                          size_t limit) = 0;
  // As they are, for whoever reads checks the hashes. Oldest first beyond `after`.
  virtual absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit) = 0;
  virtual absl::StatusOr<uint64_t> NewestAudit() = 0;  // 0: none.
};

// How much history a store keeps; the oldest goes first. And how much may wait to be written before
// the store is full.
struct StoreLimits {
  uint64_t ended_jobs = 100'000;  // With their history and request ids.
  uint64_t steps_per_job = 200'000;
  uint64_t log_lines_per_job = 20'000;
  uint64_t events_per_job = 2'000;
  uint64_t audit_entries = kAuditEntriesKept;
  uint64_t waiting_bytes = 64 << 20;
};

}  // namespace trainyard::controller
