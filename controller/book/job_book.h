// The book of all jobs. It takes submits, applies events (job_state.h), makes each result durable,
// and only then publishes the result. Live jobs are in memory. Finished jobs are read from the
// store.
//
// Two versions of a live job exist. The *applied* version contains every event so far. The
// *published* version is durable. Outside of the scheduler, everybody sees and acts on the
// published version alone.
//
// Thread-safe. Callbacks run without the book's lock, on the caller's or the store's thread. They
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
#include "common/mutex.h"
#include "controller/book/believed_time.h"
#include "controller/book/job_series.h"
#include "controller/jobs/directories.h"
#include "controller/jobs/job.h"
#include "controller/jobs/job_state.h"
#include "controller/jobs/step_window.h"
#include "controller/metrics.h"
#include "controller/store/store.h"

namespace trainyard::controller {

struct JobBookLimits {
  // Live jobs of all namespaces together. A namespace may take at most half of the places that the
  // others leave free, so that some are always left for a newcomer: a namespace alone gets half of
  // all, and each of two a third. Beyond that: RESOURCE_EXHAUSTED.
  size_t live_jobs = 20'000;
  // How long the metric series of a finished job stay.
  absl::Duration series_linger = absl::Minutes(15);
  // How many finished jobs have series. Above this, those of the first to finish go at once.
  size_t old_series = 1000;
  // The shortest time between two publications of progress that changes no state.
  absl::Duration progress_every = absl::Milliseconds(250);
};

// Hears that one job has changed durably, and reads the details from the book.
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
  JobStep record;
  uint64_t read_by_epoch = 0;  // > 0: rank 0 of this attempt read it from the directory.
};

class JobBook {
 public:
  // OK: the change is durable. Otherwise the controller is stopping, and the change may be lost.
  using Done = std::function<void(const absl::Status&)>;
  using SubmitDone = std::function<void(absl::StatusOr<Snapshot>)>;

  // Loads the live jobs. All references must outlive the book, and the store must be closed before
  // the book is destroyed. If the row of a job is damaged, the log names the job, and the other
  // jobs are loaded.
  static absl::StatusOr<std::unique_ptr<JobBook>> Create(const BelievedTime& time, Store& store,
                                                         ControllerMetrics& metrics,
                                                         const JobBookLimits& limits = {});

  // Sets the function that is called with each newly published state of a job, but not for progress
  // alone. Call this before the first use.
  void SetHook(std::function<void(const Snapshot&)> hook) { hook_ = std::move(hook); }

  // The function that is asked before a job is accepted. It is called without the book's lock, and
  // returns the roots of the workers, or the error with which the submit is answered. Set it before
  // the first use.
  using Admission = std::function<absl::StatusOr<RootPaths>(const Spec&)>;
  void SetAdmission(Admission admission) { admission_ = std::move(admission); }

  // Submits a job. `done` gets the durable job. A second call with the same request_id and the same
  // spec gets the job of the first call. `audit` becomes durable with a new job, and names the job.
  // INVALID_ARGUMENT (violations): the checkpoint directory may overlap with that of another live
  // job, the directory for traces may lie in a checkpoint directory, the job that the spec
  // continues has not ended, another job has taken over its run, or the admission refuses the spec.
  // ALREADY_EXISTS: another spec came with this request_id. RESOURCE_EXHAUSTED: the queue or the
  // disk is full. UNAVAILABLE: the store is full, or the controller is stopping.
  void Submit(const std::string& request_id, std::shared_ptr<const Spec> spec, SubmitDone done,
              std::optional<AuditEntry> audit = {});

  // Returns the error with which Submit would refuse this spec now. Submits nothing.
  absl::Status CheckSubmit(const Spec& spec) const;

  // Applies the event and returns the applied job. `durable` runs once this job and all earlier
  // changes are durable. Errors: those of Apply in job_state.h, and NOT_FOUND if the job is not
  // live. After an error `durable` runs, too, once all earlier changes are durable.
  absl::StatusOr<Snapshot> Apply(const std::string& job_id, const JobEvent& event,
                                 Done durable = {});

  // Runs `durable` once all earlier changes are durable.
  void Barrier(Done durable);

  // Merges the report into the step's record if CheckStepFence accepts the report. Otherwise counts
  // the report and drops it. `device_model`: the model of the job's devices; empty if it is not
  // known yet.
  void RecordStep(const StepReport& report, const std::string& device_model, Done durable);
  void RecordFailedCheckpoint(const std::string& job_id);
  void RecordCheckpointDuration(const std::string& job_id, const Checkpoint& checkpoint,
                                absl::Duration duration);
  // Stores log lines. Lines of a worker that the job never ran on are counted and dropped.
  void AppendLogs(const std::string& job_id, const std::string& worker_id,
                  const std::vector<LogRecord>& lines);

  // All ranks have reported every step of the job up to this one.
  uint64_t HistoryUpTo(const std::string& job_id) const;

  // Sets why a job waits for devices. The reason is not durable, because it is computed again after
  // a restart.
  void SetWaitingReason(const std::string& job_id, const std::string& reason);

  // NOT_FOUND: there is no such job. DATA_LOSS: the store's rows of the job are damaged.
  absl::StatusOr<Snapshot> Get(const std::string& job_id) const;
  // Returns the job to somebody who may see the namespace `name_space` alone (empty: all
  // namespaces). NOT_FOUND also for a job of another namespace.
  absl::StatusOr<Snapshot> Get(const std::string& job_id, const std::string& name_space) const;

  // Whether the store's row of this job was damaged when the book was loaded, or may have been. A
  // damaged row may hide its number. So if there is one, every job that the store does not know
  // counts as damaged, too. The ranks of such a job must be left running, because the book cannot
  // tell what they are.
  bool IsDamaged(const std::string& job_id) const;

  // Newest first, older than `before` (a job's number; 0: all). Damaged jobs are left out.
  absl::StatusOr<std::vector<Snapshot>> List(const JobFilter& filter, uint64_t before,
                                             size_t limit) const;
  std::vector<Snapshot> Live() const;  // As applied.
  // The jobs that wait to be placed, as applied. A job whose last change is not durable yet is left
  // out, because nobody may act on a state before it is published.
  std::vector<Snapshot> Waiting() const;
  // The applied or the published version of a live job; null for any other job.
  Snapshot Applied(const std::string& job_id) const;
  Snapshot Published(const std::string& job_id) const;
  Store& store() const { return store_; }

  // Tells the listener of every change until the listener is destroyed or the job has ended.
  void Subscribe(const std::string& job_id, std::weak_ptr<JobListener> listener);

  // Publishes progress that was held back, removes old metric series, and looks whether the clock
  // has leapt. Call this a few times a second.
  void Tick();

 private:
  struct Slot {
    Snapshot applied, published;
    int writes_in_flight = 0;  // Progress waits until there are none, so that revisions only grow.
    bool progress_waits = false;
    absl::Duration last_progress = -absl::InfiniteDuration();
    StepWindow steps;
    uint64_t validated_step = 0;       // Of progress.validation_loss. 0: that is absent.
    bool look_for_validation = false;  // The store may have a newer one that counts.
    std::vector<std::weak_ptr<JobListener>> listeners;
    std::unique_ptr<JobSeries> series;
    // A monotonic time. Absent: an earlier controller took the job.
    std::optional<absl::Duration> queued_at;
    // The ended job whose run this one is to go on with. That job names this one as its successor
    // only once this one has taken over the directory: a job that is refused, or fails before, has
    // changed nothing there. Null: there is none that this controller knows, or it names this one.
    Snapshot continued;
  };
  // A job that has ended before all of its steps were known. A worker whose disk failed for a while
  // reads the others later.
  struct Ended {
    Snapshot job;
    StepWindow steps;
  };
  // One submit in progress: its request is looked up, then the job is written. A repeated call with
  // the same request_id waits for the outcome.
  struct Submission {
    std::string request_id;
    std::shared_ptr<const Spec> spec;
    std::vector<SubmitDone> waiting;
    std::optional<AuditEntry> audit;
    Snapshot continued = nullptr;  // The job whose run the new one is to go on with, if known.
  };
  struct OldSeries {
    absl::Duration remove_at;
    std::unique_ptr<JobSeries> series;
  };

  JobBook(const BelievedTime& time, Store& store, ControllerMetrics& metrics,
          const JobBookLimits& limits)
      : time_(time), store_(store), metrics_(metrics), limits_(limits) {}

  absl::Status Load();
  absl::Status LoadJob(const StoredJob& stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<RootPaths> Admit(const Spec& spec) const;
  absl::Status CheckSubmitLocked(const Spec& spec, const RootPaths& roots) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job that an earlier call with this request_id made, from the store. OK with null:
  // there is none.
  absl::StatusOr<Snapshot> Earlier(const std::string& request_id, const Spec& spec) const;
  absl::StatusOr<Refusal> WriteNew(const std::shared_ptr<Submission>& submission);
  // Returns the job whose run a stored job continues, as FindContinued did when it was submitted.
  Snapshot StoredContinued(const JobFacts& facts) const;
  // Returns the job whose run the spec continues, or null: none, or one that this controller does
  // not know. INVALID_ARGUMENT (violations): the job has not ended, is of another namespace, or
  // another job has taken over its run.
  absl::StatusOr<Snapshot> FindContinued(const Spec& spec, const RootPaths& roots) const;
  // Returns the job that has taken over the run of `job`, if the spec names a directory that the
  // run has been in. A copy of the directory at another path may still be that of `job`. Empty: no
  // other job has the run.
  std::string HasTakenOver(const Snapshot& job, const Spec& spec, const RootPaths& roots) const;
  Job NewJob(std::shared_ptr<const Spec> spec, const Snapshot& continued)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job that is live or being submitted takes a place in the queue and reserves its directory.
  void TakePlace(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeavePlace(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Written(const std::shared_ptr<Submission>& submission, const Job& job,
               const absl::Status& status);
  void Answer(const std::shared_ptr<Submission>& submission,
              const absl::StatusOr<Snapshot>& answer);
  void Publish(const Snapshot& job);
  static void Notify(const std::vector<std::weak_ptr<JobListener>>& listeners);
  // Notifies the job's present listeners. A listener that subscribed while a write was under way
  // has read the job before the write, and must hear of the write, too.
  void NotifyJob(const std::string& job_id);
  static absl::Status CheckFenceOf(const Job& job, const StepReport& report);
  // Returns the newest validated step of the job that counts, from the store.
  absl::StatusOr<JobStep> LastValidated(const Job& job) const;
  void ValidatedEarlier(const std::string& job_id);  // A step that an earlier attempt trained.
  // Sets the validation loss of jobs whose last one was lost, or has been reported late.
  void LookForValidations();
  void Refused(const char* report);
  void StepFinished(Slot& slot, const JobStep& step, const DeviceFacts& devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a new version was published. If so, the caller must notify the listeners.
  bool PublishProgress(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobSeries& SeriesOf(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps the series of a job that has ended for a while.
  void LetGo(std::unique_ptr<JobSeries> series) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns how long a job that has been placed at `placed` has waited.
  absl::Duration Waited(const Slot& slot, const Job& job, absl::Time placed) const;
  bool DamagedRow(uint64_t number) const;
  absl::StatusOr<Snapshot> FromStore(const StoredJob& stored) const;

  const BelievedTime& time_;
  Store& store_;
  ControllerMetrics& metrics_;
  const JobBookLimits limits_;
  std::function<void(const Snapshot&)> hook_;
  Admission admission_;

  mutable Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);  // Live jobs by id.
  std::map<std::string, std::shared_ptr<Submission>> submissions_
      ABSL_GUARDED_BY(mutex_);                       // By request_id, if there is one.
  Directories directories_ ABSL_GUARDED_BY(mutex_);  // The checkpoint directories of live jobs.
  // Numbers of damaged jobs, which are not in slots_.
  std::set<uint64_t> damaged_ ABSL_GUARDED_BY(mutex_);
  size_t submitting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> places_ ABSL_GUARDED_BY(mutex_);  // Places taken, by namespace.
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<OldSeries> old_series_ ABSL_GUARDED_BY(mutex_);
  std::deque<Ended> ended_ ABSL_GUARDED_BY(mutex_);  // The newest, the oldest first.
};

}  // namespace trainyard::controller
