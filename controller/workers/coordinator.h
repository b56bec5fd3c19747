// Brings jobs and workers together: leases, orders, fencing and placement. All messages of workers
// come in here. All orders go out from Reconcile. It compares what the published (and so durable)
// job wants with the last orders that the job's workers got. That also repairs the state after
// reconnects and restarts.
//
// Thread-safe. Never blocks on disk or network. Lock order: the coordinator's lock before the
// book's. Links and listeners are called with the lock held, and must not call back.

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
  Pace pace = {};  // The pace of a small fleet.
  // How long the controller waits for a worker after its own restart, before the worker's ranks
  // count as dead. The workers' retries are spread over some seconds, and each registration takes a
  // while.
  absl::Duration restart_grace = absl::Seconds(12);
  absl::Duration restart_grace_per_worker = absl::Milliseconds(5);
  // How long ranks may take to finish a step, checkpoint and stop, before they are killed.
  absl::Duration stop_deadline = absl::Seconds(60);
  absl::Duration gauges_every = absl::Seconds(1);
  // How many devices the jobs of a namespace may hold; absent: any number. Called with locks held.
  std::function<std::optional<uint32_t>(const std::string& name_space)> device_quota = {};
  // The roots below which the namespace's paths lie now; empty: anywhere. NOT_FOUND: the namespace
  // does not exist any more. Called with locks held.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& name_space)> roots_of =
      {};
};

class Coordinator {
 public:
  using Done = JobBook::Done;

  // `wake` asks for a Tick soon, and must not call back. Sets the book's hook and admission.
  // Events are dated by `clock`, and workers by its monotonic reading.
  Coordinator(const BelievedTime& clock, JobBook& book, ControllerMetrics& metrics,
              std::function<void()> wake, const CoordinatorOptions& options = {});
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Tries again to place waiting jobs. Call this when a namespace's limits have changed.
  void ScheduleAgain();

  // Registers a worker whose stream has opened, and compares the ranks that it reports with those
  // that it should run. Errors: those of WorkerTable::Connect.
  absl::StatusOr<Session> Connect(Registration registration, std::shared_ptr<WorkerLink> link);
  void Disconnect(const Session& session);
  // Does the same for a worker that may not come back. The worker is lost at the next Tick, however
  // long its ranks may outlive its daemon.
  void Expel(const Session& session);
  // Expels all workers whose grants are not valid any more, including those without a stream.
  // `holds` is called with the lock held.
  void ExpelUnless(const std::function<bool(const std::string& grant_id)>& holds);

  // Each of these takes a message of a worker. `durable` runs once no part of the report can be
  // lost, even if the report was not new. If the controller stops earlier, `durable` runs with an
  // error. If the stream is superseded, `durable` does not run.
  void OnHeartbeat(const Session& session);
  // Takes a message that only a newer worker sends. Nothing of it is stored. It is acknowledged
  // after all earlier reports, because the worker repeats it until then.
  void OnUnknown(const Session& session, Done durable);
  void OnRankStatus(const Session& session, const RankStatus& status, Done durable);
  void OnStep(const Session& session, StepReport report, Done durable);
  void OnCheckpoint(const Session& session, CheckpointReport report, Done durable);
  void OnLogs(const Session& session, const LogReport& report);
  void OnRendezvousSet(const Session& session, const RendezvousValue& value);
  void OnRendezvousGet(const Session& session, const RendezvousValue& key);  // key.value is empty.
  void OnDraining(const Session& session);

  // Cancels the job. `done` gets the job once the cancellation is durable. If the job had ended,
  // `done` gets it as it is. NOT_FOUND: there is no such job. UNAVAILABLE: the controller is
  // stopping, or its store is full.
  void Cancel(const std::string& job_id, const CancelRequested& request, JobBook::SubmitDone done);

  std::vector<Worker> Workers() const;  // Without links.
  // The job and the rank that hold a device. Holders has them by worker and device.
  struct Holder {
    std::string job_id;
    uint32_t rank = 0;
  };
  using Holders = std::map<std::pair<std::string, uint32_t>, Holder>;
  Holders DeviceHolders() const;
  // Returns the holders for somebody who may see the namespace `name_space` alone (empty: all
  // namespaces). Jobs of other namespaces have no names.
  Holders DeviceHolders(const std::string& name_space) const;

  // Does the regular work: expires leases, stops overdue jobs, publishes progress, runs one
  // scheduling pass if something has changed, and sets gauges. Call this a few times a second, and
  // when woken.
  void Tick();

 private:
  void OnPublished(const Snapshot& job);
  // Returns the roots of the workers that are registered now. INVALID_ARGUMENT (violations): none
  // of them accepts a path of the spec, or none of their devices computes its precision.
  absl::StatusOr<RootPaths> CheckAgainstWorkers(const Spec& spec) const;
  void Reconcile(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const std::string& worker_id, const Snapshot& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the present roots of the job's namespace. If the namespace does not exist any more,
  // returns its roots at the job's submit.
  std::vector<std::string> RootsOf(const Job& job) const;
  void CompareRunning(const Registration& registration, Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks a rank that a worker reports as running. If the rank is not current, remembers it as
  // stale and tells the worker to stop it.
  void StopIfStale(Worker& worker, const RankStatus& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Limits how long the job waits for those of its workers that have no stream: to one lease.
  // Called when a rank of the job has lost a peer, or the attempt has ended for another reason.
  // Other jobs on these workers wait as before.
  void HearComplaint(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireComplaints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the job waits some time before it tries again to find its storage.
  bool WaitsForStorage(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopOverdueJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SchedulingPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes from `waiting` the jobs that exceed the quota of their namespace or lie outside its
  // present roots, and sets their waiting reasons. `live`: all jobs.
  void HoldToLimits(const std::vector<Snapshot>& live, std::vector<Snapshot>& waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<DevicePool> Pools(const Holders& held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Holders HoldersOf(const std::vector<Snapshot>& jobs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Place(const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the model of the first rank's device; empty if its worker has not come back yet.
  std::string DeviceModelOf(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the value belongs to an attempt of which this worker has a rank. Otherwise a stranger
  // could join the attempt.
  bool MayMeet(const RendezvousValue& value, const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowAges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sets these series of the family, and removes all its other series.
  void Show(ControllerMetrics::Gauges& family, const std::map<prometheus::Labels, double>& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobEvent Event(decltype(JobEvent::what) what) const { return {clock_.Now(), std::move(what)}; }

  const BelievedTime& clock_;
  JobBook& book_;
  ControllerMetrics& metrics_;
  const std::function<void()> wake_;
  const CoordinatorOptions options_;

  mutable Mutex mutex_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  Rendezvous rendezvous_ ABSL_GUARDED_BY(mutex_);
  bool schedule_wanted_ ABSL_GUARDED_BY(mutex_) = true;
  // Jobs that save a checkpoint to stop, and when they are killed if they have not stopped.
  std::map<std::string, absl::Duration> stop_by_ ABSL_GUARDED_BY(mutex_);
  // When jobs that did not find their storage try again. In the past: they may try now.
  std::map<std::string, absl::Duration> storage_retry_ ABSL_GUARDED_BY(mutex_);
  // When a job stops waiting for a worker without a stream. By job and worker.
  std::map<std::pair<std::string, std::string>, absl::Duration> complaints_ ABSL_GUARDED_BY(mutex_);
  std::map<ControllerMetrics::Gauges*, std::map<prometheus::Labels, prometheus::Gauge*>> gauges_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, prometheus::Gauge*> ages_ ABSL_GUARDED_BY(mutex_);  // By worker.
  absl::Duration gauges_due_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace trainyard::controller
