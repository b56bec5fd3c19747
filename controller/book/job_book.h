// Every job: submits, applies events (job_state.h), makes the result durable, and only then
// publishes it. Live jobs are in memory; finished ones are read from the store.
//
// Two versions of a live job exist. The *applied* one holds every event told so far; the
// *published* one is durable, and is all that anybody outside of the scheduler ever sees or acts
// upon.
//
// Thread-safe. Callbacks run without the book's lock, on the caller's or the store's thread; they
// must be quick.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "controller/book/job_series.h"
#include "controller/jobs/directories.h"
#include "controller/jobs/job.h"
#include "controller/jobs/job_state.h"
#include "controller/jobs/step_window.h"
#include "controller/metrics.h"
#include "controller/store/store.h"

namespace trainyard::controller {

struct JobBookLimits {
  // Of all namespaces. One may have as many as there are free places: half of them alone, a third
  // beside another, so that some are always left for who comes. Beyond: RESOURCE_EXHAUSTED.
  size_t live_jobs = 20'000;
  absl::Duration series_linger =
      absl::Minutes(15);  // Metric series of a finished job stay this long.
  absl::Duration progress_every = absl::Milliseconds(250);  // At most so often without a new state.
};

// Told about one job after it changed durably; reads what it wants to know from the book.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void OnJobChanged() = 0;
};

// One rank's report of one step.
struct StepReport {
  std::string job_id;
  uint32_t rank = 0;
  std::string worker_id;
  StepRecord record;
  std::vector<CollectiveUse> collectives = {};
  std::optional<double> peak_flops = {};  // Per second, of all ranks together; absent: unknown.
  uint64_t read_by_epoch = 0;  // > 0: rank 0 of that attempt has read it from the directory.
};

class JobBook {
 public:
  // OK: nothing of it can be lost. Otherwise the controller is stopping, and it may be.
  using Done = std::function<void(const absl::Status&)>;
  using SubmitDone = std::function<void(absl::StatusOr<Snapshot>)>;

  // Loads the live jobs. All references outlive the book, and the store is closed before the book
  // goes. A job whose row is damaged is named in the log, and the others are loaded.
  static absl::StatusOr<std::unique_ptr<JobBook>> Create(const Clock& clock, Store& store,
                                                         ControllerMetrics& metrics,
                                                         const JobBookLimits& limits = {});

  // Called with each newly published state of a job (not for mere progress). Set before use.
  void SetHook(std::function<void(const Snapshot&)> hook) { hook_ = std::move(hook); }

  // Asked before a job is accepted, without the book's lock. Returns the roots of the workers, or
  // the error that is the answer. Set before use.
  using Admission = std::function<absl::StatusOr<RootPaths>(const Spec&)>;
  void SetAdmission(Admission admission) { admission_ = std::move(admission); }

  // `done` gets the durable job. The same request_id with the same spec gets the first call's job.
  // INVALID_ARGUMENT (violations): the checkpoint directory may overlap with another live job's
  // or hold this one's traces, or the admission's.
  // ALREADY_EXISTS: request_id came with another spec. RESOURCE_EXHAUSTED: queue or disk full.
  // UNAVAILABLE: the store is full, or the controller is stopping.
  // `audit` becomes durable with a new job, and names it.
  void Submit(const std::string& request_id, std::shared_ptr<const Spec> spec, SubmitDone done,
              std::optional<AuditEntry> audit = {});

  // What Submit would refuse, without submitting.
  absl::Status CheckSubmit(const Spec& spec) const;

  // The applied state; `durable` runs once that state, and all before, is durable. Errors are
  // Apply's (see job_state.h) and NOT_FOUND for a job that is not live; `durable` runs with those,
  // too, once all that was told before is durable.
  absl::StatusOr<Snapshot> Apply(const std::string& job_id, const JobEvent& event,
                                 Done durable = {});

  // `durable` runs once all that was told before is durable.
  void Barrier(Done durable);

  // Merges the report into the step's record, where CheckStepFence lets it; what it does not is
  // counted and dropped. `device_model`: of the job's devices; empty where it is not known yet.
  void RecordStep(const StepReport& report, const std::string& device_model, Done durable);
  void RecordFailedCheckpoint(const std::string& job_id);
  void RecordCheckpointDuration(const std::string& job_id, const Checkpoint& checkpoint,
                                absl::Duration duration);
  // Drops and counts lines of a worker that the job never ran on.
  void AppendLogs(const std::string& job_id, const std::string& worker_id,
                  const std::vector<LogRecord>& lines);

  // Every step of the job up to this one is told.
  uint64_t HistoryUpTo(const std::string& job_id) const;

  // Why a job waits for devices, the first or others; not durable, for it is computed anew.
  void SetWaitingReason(const std::string& job_id, const std::string& reason);

  // NOT_FOUND. DATA_LOSS: what the store holds of the job is damaged.
  absl::StatusOr<Snapshot> Get(const std::string& job_id) const;
  // The same for who may see one namespace alone, or, where that is empty, all of them: others'
  // jobs are not there.
  absl::StatusOr<Snapshot> Get(const std::string& job_id, const std::string& name_space) const;

  // Whether the store's row of this job was damaged when the book was loaded, or may have been: a
  // damaged row may hide its number, so beside one every job that the store does not know counts
  // as damaged. Such a job's ranks must be left running, for the book cannot tell what they are.
  bool IsDamaged(const std::string& job_id) const;

  // Newest first, older than `before` (a job's number; 0: all). Without damaged jobs.
  absl::StatusOr<std::vector<Snapshot>> List(const JobFilter& filter, uint64_t before,
                                             size_t limit) const;
  std::vector<Snapshot> Live() const;  // As applied.
  // Jobs to be placed, as applied. A job whose last change is not durable yet is none of them, for
  // only what is published may be seen to act.
  std::vector<Snapshot> Waiting() const;
  Snapshot Applied(const std::string& job_id) const;  // Of a live job; null otherwise.
  // As published, of a live job; null otherwise.
  Snapshot Published(const std::string& job_id) const;
  Store& store() const { return store_; }

  // The listener hears until it is gone. Nothing is heard of jobs that are not live.
  void Subscribe(const std::string& job_id, std::weak_ptr<JobListener> listener);

  // Publishes progress that was held back, and removes old metric series. Call a few times a
  // second.
  void Tick();

 private:
  struct Slot {
    Snapshot applied, published;
    int writes_in_flight = 0;  // Progress waits for these, so that revisions only grow.
    bool progress_waits = false;
    absl::Duration last_progress = -absl::InfiniteDuration();
    StepWindow steps;
    std::vector<std::weak_ptr<JobListener>> listeners;
    std::unique_ptr<JobSeries> series;
  };
  // One request on its way: looked up, then written. The same one again waits for its outcome.
  struct Submission {
    std::string request_id;
    std::shared_ptr<const Spec> spec;
    std::vector<SubmitDone> waiting;
    std::optional<AuditEntry> audit;
  };
  struct OldSeries {
    absl::Duration remove_at;
    std::unique_ptr<JobSeries> series;
  };

  JobBook(const Clock& clock, Store& store, ControllerMetrics& metrics, const JobBookLimits& limits)
      : clock_(clock), store_(store), metrics_(metrics), limits_(limits) {}

  absl::Status Load();
  absl::Status LoadJob(const StoredJob& stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<RootPaths> Admit(const Spec& spec) const;
  absl::Status CheckSubmitLocked(const Spec& spec, const RootPaths& roots) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What an earlier call with this request_id made, from the store. OK with null: nothing.
  absl::StatusOr<Snapshot> Earlier(const std::string& request_id, const Spec& spec) const;
  absl::StatusOr<Refusal> WriteNew(const std::shared_ptr<Submission>& submission);
  Job NewJob(std::shared_ptr<const Spec> spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job that lives, or is being submitted, has a place in the queue, and its directory.
  void TakePlace(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeavePlace(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Written(const std::shared_ptr<Submission>& submission, const Job& job,
               const absl::Status& status);
  void Answer(const std::shared_ptr<Submission>& submission,
              const absl::StatusOr<Snapshot>& answer);
  void Publish(const Snapshot& job);
  static void Notify(const std::vector<std::weak_ptr<JobListener>>& listeners);
  // Whoever listens now: one that came while a write was under way has read before it, and must
  // hear of it, too.
  void NotifyJob(const std::string& job_id);
  static absl::Status CheckFenceOf(const Job& job, const StepReport& report);
  void Refused(const char* report);
  void StepFinished(Slot& slot, const StepRecord& step, const DeviceFacts& devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if a new version was published (listeners are to be told).
  bool PublishProgress(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobSeries& SeriesOf(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DamagedRow(uint64_t number) const;
  absl::StatusOr<Snapshot> FromStore(const StoredJob& stored) const;

  const Clock& clock_;
  Store& store_;
  ControllerMetrics& metrics_;
  const JobBookLimits limits_;
  std::function<void(const Snapshot&)> hook_;
  Admission admission_;

  mutable Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);  // Live jobs by id.
  std::map<std::string, std::shared_ptr<Submission>> submissions_
      ABSL_GUARDED_BY(mutex_);                          // By request_id, where there is one.
  Directories directories_ ABSL_GUARDED_BY(mutex_);     // Of the live jobs' checkpoints.
  std::set<uint64_t> damaged_ ABSL_GUARDED_BY(mutex_);  // Jobs' numbers; not in slots_.
  size_t submitting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> places_ ABSL_GUARDED_BY(mutex_);  // Taken, by namespace.
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<OldSeries> old_series_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::controller
