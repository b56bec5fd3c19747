// Brings jobs and workers together: leases, orders, fencing, placement. Every word of a worker
// comes in here; every order goes out from Reconcile, which compares what a job wants (as
// published, so durable) with what its workers were last told, and so also heals reconnects and
// restarts.
//
// Thread-safe; never blocks on disk or network. Lock order: the coordinator's lock before the
// book's; links and listeners are called with the lock held and must not call back.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "controller/book/job_book.h"
#include "controller/metrics.h"
#include "controller/workers/messages.h"
#include "controller/workers/rendezvous.h"
#include "controller/workers/worker_table.h"

namespace trainyard::controller {

struct CoordinatorOptions {
  Pace pace = {};  // Of a small fleet.
  // For workers to come back after a restart of the controller before their ranks count as dead:
  // their retries are spread over some seconds, and each takes a while to be registered.
  absl::Duration restart_grace = absl::Seconds(12);
  absl::Duration restart_grace_per_worker = absl::Milliseconds(5);
  // For ranks to finish a step, checkpoint and stop; then they are killed.
  absl::Duration stop_deadline = absl::Seconds(60);
  absl::Duration gauges_every = absl::Seconds(1);
  // How many devices the jobs of a namespace may hold; absent: any number. Called with locks held.
  std::function<std::optional<uint32_t>(const std::string& name_space)> device_quota = {};
  // Below which roots its paths lie now; empty: anywhere. NOT_FOUND: it is there no more. Likewise.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& name_space)> roots_of =
      {};
};

class Coordinator {
 public:
  using Done = JobBook::Done;

  // `wake` asks for a Tick soon; it must not call back. Takes the book's hook and admission.
  Coordinator(const Clock& clock, JobBook& book, ControllerMetrics& metrics,
              std::function<void()> wake, const CoordinatorOptions& options = {});
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // What waits may be placed now: its namespace's limits have changed.
  void ScheduleAgain();

  // A worker's stream opened. What it says it runs is compared with what it should run. Errors are
  // those of WorkerTable::Connect.
  absl::StatusOr<Session> Connect(Registration registration, std::shared_ptr<WorkerLink> link);
  void Disconnect(const Session& session);
  // The same for a worker that may not come back: it is lost by the next Tick, however long it may
  // be detached.
  void Expel(const Session& session);
  // Likewise all workers whose grant does not hold any more, also those without a stream. `holds`
  // is called with the lock held.
  void ExpelUnless(const std::function<bool(const std::string& grant_id)>& holds);

  // `durable` runs once nothing of the report can be lost, whether it was news or not, or with an
  // error when the controller stops before; it does not run on a superseded stream.
  void OnHeartbeat(const Session& session);
  // A message of a newer worker, of which there is nothing to store. It is acknowledged all the
  // same, after the reports before it: the worker repeats it until then.
  void OnUnknown(const Session& session, Done durable);
  void OnRankStatus(const Session& session, const RankStatus& status, Done durable);
  void OnStep(const Session& session, StepReport report, Done durable);
  void OnCheckpoint(const Session& session, CheckpointReport report, Done durable);
  void OnLogs(const Session& session, const std::string& job_id,
              const std::vector<LogRecord>& lines);
  void OnRendezvousSet(const Session& session, const RendezvousValue& value);
  void OnRendezvousGet(const Session& session, const RendezvousValue& key);  // value is empty.
  void OnDraining(const Session& session);

  // `done` gets the job once the cancellation is durable, or as it is if it had ended. NOT_FOUND;
  // UNAVAILABLE the controller is stopping, or its store is full.
  void Cancel(const std::string& job_id, const CancelRequested& request, JobBook::SubmitDone done);

  std::vector<Worker> Workers() const;  // Without links.
  // Who holds a device: job id and rank, by worker and device.
  struct Holder {
    std::string job_id;
    uint32_t rank = 0;
  };
  using Holders = std::map<std::pair<std::string, uint32_t>, Holder>;
  Holders DeviceHolders() const;
  // The same for who may see one namespace alone, or, where that is empty, all of them: other jobs
  // hold their devices without their names.
  Holders DeviceHolders(const std::string& name_space) const;

  // Leases, overdue stops, held-back progress, one scheduling pass where something changed, gauges.
  // Call a few times a second, and when woken.
  void Tick();

 private:
  void OnPublished(const Snapshot& job);
  // The roots of the workers that are registered now. INVALID_ARGUMENT (violations): a path that
  // none of them admits; a precision that no device of theirs computes.
  absl::StatusOr<RootPaths> CheckAgainstWorkers(const Spec& spec) const;
  void Reconcile(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const std::string& worker_id, const Snapshot& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the job's namespace: those of now, or, where that is there no more, those of its submission.
  std::vector<std::string> RootsOf(const Job& job) const;
  void CompareRunning(const Registration& registration, Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a rank that is said to run: one that is not current is remembered as stale, and told to
  // stop.
  void StopIfStale(Worker& worker, const RankStatus& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A rank of the job has lost a peer, or the attempt is over for another reason: the job waits for
  // its workers that have no stream no longer than a lease. Other jobs of theirs wait on.
  void HearComplaint(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireComplaints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the job waits before it looks for its storage again.
  bool WaitsForStorage(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopOverdueJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SchedulingPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out of `waiting` what would exceed its namespace's quota, or lies outside of its roots of
  // now, and says so. `live`: all jobs.
  void HoldToLimits(const std::vector<Snapshot>& live, std::vector<Snapshot>& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<DevicePool> Pools(const Holders& held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Holders HoldersOf(const std::vector<Snapshot>& jobs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Place(const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the first rank; empty where its worker has not come back yet.
  std::string DeviceModelOf(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the value is of an attempt that this worker has a rank of: it would admit a stranger.
  bool MayMeet(const RendezvousValue& value, const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowAges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes these the series of the family, and removes those that are not among them.
  void Show(ControllerMetrics::Gauges& family, const std::map<prometheus::Labels, double>& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobEvent Event(decltype(JobEvent::what) what) const { return {clock_.Now(), std::move(what)}; }

  const Clock& clock_;
  JobBook& book_;
  ControllerMetrics& metrics_;
  const std::function<void()> wake_;
  const CoordinatorOptions options_;

  mutable Mutex mutex_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  Rendezvous rendezvous_ ABSL_GUARDED_BY(mutex_);
  bool schedule_wanted_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<std::string, absl::Duration> stop_by_
      ABSL_GUARDED_BY(mutex_);  // Jobs that checkpoint to stop.
  // Jobs that did not find their storage: when they try again. In the past, once they may.
  std::map<std::string, absl::Duration> storage_retry_ ABSL_GUARDED_BY(mutex_);
  // By job and worker: when the job no longer waits for the worker, which has no stream.
  std::map<std::pair<std::string, std::string>, absl::Duration> complaints_ ABSL_GUARDED_BY(mutex_);
  std::map<ControllerMetrics::Gauges*, std::map<prometheus::Labels, prometheus::Gauge*>> gauges_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, prometheus::Gauge*> ages_ ABSL_GUARDED_BY(mutex_);  // By worker.
  absl::Duration gauges_due_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace trainyard::controller
