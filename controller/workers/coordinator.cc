#include "controller/workers/coordinator.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "controller/jobs/job_state.h"
#include "train/config/precision.h"

namespace trainyard::controller {
namespace {

RankReported ReportOf(const std::string& worker_id, const RankStatus& status) {
  return {.epoch = status.epoch,
          .rank = status.rank,
          .state = status.state,
          .cause = status.cause,
          .signal = status.signal,
          .exit_code = status.exit_code,
          .message = status.message,
          .worker_id = worker_id,
          .resumed = status.resumed};
}

// The most stale ranks of one worker: as many as it may report when it registers
// (service/convert_worker.cc).
constexpr size_t kMostStale = 4096;
constexpr absl::Duration kStaleLogEvery = absl::Seconds(1);

// Whether the job's ranks should run.
bool IsWanted(const Job& job) {
  return job.state == JobState::kStarting || job.state == JobState::kRunning;
}

}  // namespace

Coordinator::Coordinator(const BelievedTime& clock, JobBook& book, ControllerMetrics& metrics,
                         std::function<void()> wake, const CoordinatorOptions& options)
    : clock_(clock),
      book_(book),
      metrics_(metrics),
      wake_(std::move(wake)),
      options_(options),
      table_(clock, options.pace) {
  {
    MutexLock lock(mutex_);
    std::set<std::string> expected;
    for (const Snapshot& job : book_.Live()) {
      for (const Rank& rank : job->ranks) {
        if (!IsGone(rank.phase)) expected.insert(rank.worker_id);
      }
      if (!job->AllRanksGone() && job->stop_mode == StopMode::kCheckpoint) {
        stop_by_[job->id] = clock_.Monotonic() + options_.stop_deadline;
      }
    }
    const absl::Duration grace =
        options_.restart_grace + int64_t(expected.size()) * options_.restart_grace_per_worker;
    for (const std::string& worker_id : expected) table_.Expect(worker_id, grace);
  }
  book_.SetHook([this](const Snapshot& job) { OnPublished(job); });
  book_.SetAdmission([this](const Spec& spec) { return CheckAgainstWorkers(spec); });
}

Coordinator::~Coordinator() {
  book_.SetHook(nullptr);
  book_.SetAdmission(nullptr);
}

absl::StatusOr<RootPaths> Coordinator::CheckAgainstWorkers(const Spec& spec) const {
  RootPaths roots;
  std::set<DeviceKind> kinds;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, worker] : table_.workers()) {
      if (worker.session == 0 || worker.state == WorkerState::kLost) continue;
      roots.insert(worker.registration.roots.begin(), worker.registration.roots.end());
      for (const Device& device : worker.registration.devices) kinds.insert(device.kind);
    }
  }
  Violations violations;
  // Such a job would wait for machines of another kind. A job that is merely too large for the
  // cluster is accepted.
  if (spec.facts.cpu_only && kinds == std::set{DeviceKind::kCuda}) {
    const std::vector<std::string> of_gpus = PrecisionNamesOn(DeviceKind::kCuda);
    violations.Add("precision",
                   absl::StrCat(absl::StrJoin(of_gpus, " or "),
                                ", since every device of this cluster is a GPU"),
                   absl::StrCat(spec.facts.precision, ", which exists on CPU ranks alone"),
                   NearestPrecisionOn(DeviceKind::kCuda, spec.facts.precision));
  }
  for (const SpecPath& named : spec.facts.paths) {
    // If no worker has told its roots, the worker that starts the job decides.
    if (roots.empty()) break;
    const auto admits = [&](const std::string& root) { return MayLieBelow(named.path, root); };
    if (std::any_of(roots.begin(), roots.end(), admits)) continue;
    violations.Add(named.field, "a path below a root of a worker",
                   absl::StrCat("'", named.path, "'"),
                   absl::StrCat("one below ", absl::StrJoin(roots, " or "),
                                ", or a relative one, which is taken from there. To add a root: "
                                "trainyard up --root DIR, or trainyard-worker --root DIR"));
  }
  RETURN_IF_ERROR(violations.ToStatus());
  return roots;
}

absl::StatusOr<Session> Coordinator::Connect(Registration registration,
                                             std::shared_ptr<WorkerLink> link) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Worker * worker, table_.Connect(registration, std::move(link)));
  std::erase_if(complaints_, [&](const auto& complaint) {
    return complaint.first.second == registration.worker_id;
  });
  const Pace pace = table_.pace();
  worker->link->Send(Registered{pace.beat, pace.lease});
  LogInfo("worker_registered", {{"worker", registration.worker_id},
                                {"host", registration.hostname},
                                {"devices", registration.devices.size()},
                                {"running", registration.running.size()}});
  CompareRunning(registration, *worker);
  schedule_wanted_ = true;
  wake_();
  return Session{registration.worker_id, worker->session};
}

void Coordinator::StopIfStale(Worker& worker, const RankStatus& status) {
  const std::string& id = worker.registration.worker_id;
  if (status.state == RankState::kExited) return;  // Its end comes as a report, in order.
  const Snapshot job = book_.Applied(status.job_id);
  if (job != nullptr && CheckFence(*job, status.epoch, status.rank, id).ok()) return;
  // No current attempt wants the rank: its epoch is superseded, or its worker had been declared
  // lost.
  const std::pair<std::string, uint32_t> key(status.job_id, status.rank);
  if (worker.stale.size() >= kMostStale && !worker.stale.contains(key)) {
    return worker.link->Close(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMostStale, " ranks that nobody wants run there")));
  }
  worker.stale[key] = {status.epoch, status.device};
  // If the store cannot tell, the rank runs on: it may be all that is left of the job.
  if (book_.IsDamaged(status.job_id)) return;
  worker.link->Send(StopOrder{status.job_id, status.epoch, StopMode::kKill});
  // Workers may repeat this at any rate, and must not fill the log's disk.
  if (clock_.Monotonic() < worker.stale_log_due) return;
  worker.stale_log_due = clock_.Monotonic() + kStaleLogEvery;
  LogWarning("stale_rank", {{"job", status.job_id},
                            {"epoch", status.epoch},
                            {"rank", status.rank},
                            {"worker", id},
                            {"in_all", worker.stale.size()}});
}

void Coordinator::CompareRunning(const Registration& registration, Worker& worker) {
  std::set<std::tuple<std::string, uint64_t, uint32_t>> mentioned;
  for (const RankStatus& status : registration.running) {
    mentioned.emplace(status.job_id, status.epoch, status.rank);
    StopIfStale(worker, status);
  }
  for (const Snapshot& job : book_.Live()) {
    for (uint32_t i = 0; i < job->ranks.size(); ++i) {
      const Rank& rank = job->ranks[i];
      // An order to start may not have arrived. It is repeated below if it is still wanted.
      const bool ordered_again = rank.phase == RankPhase::kOrdered && IsWanted(*job);
      if (rank.worker_id != registration.worker_id || IsGone(rank.phase) || ordered_again ||
          mentioned.contains({job->id, job->epoch, i})) {
        continue;
      }
      (void)book_.Apply(job->id, Event(RankVanished{job->epoch, i}));
    }
    if (const Snapshot published = book_.Published(job->id)) Reconcile(*published);
  }
}

void Coordinator::Disconnect(const Session& session) {
  MutexLock lock(mutex_);
  if (!table_.Disconnect(session)) return;
  // A rank that lost a peer may have reported so before the stream was seen to be closed.
  for (const Snapshot& job : book_.Live()) {
    const bool ending = job->state == JobState::kRecovering || job->state == JobState::kStopping;
    if (ending) HearComplaint(*job);
  }
}

void Coordinator::ScheduleAgain() {
  MutexLock lock(mutex_);
  schedule_wanted_ = true;
  wake_();
}

void Coordinator::Expel(const Session& session) {
  MutexLock lock(mutex_);
  if (!table_.Expel(session)) return;
  LogWarning("worker_expelled", {{"worker", session.worker_id}});
  wake_();
}

void Coordinator::ExpelUnless(const std::function<bool(const std::string& grant_id)>& holds) {
  MutexLock lock(mutex_);
  for (const auto& [id, worker] : table_.workers()) {
    const std::string& grant = worker.registration.grant_id;
    if (grant.empty() || worker.state == WorkerState::kLost || holds(grant)) continue;
    if (worker.link != nullptr) {
      worker.link->Close(absl::UnauthenticatedError("the worker's certificate has been revoked"));
    }
    table_.Expel({id, worker.session});
    LogWarning("worker_expelled", {{"worker", id}});
    wake_();
  }
}

void Coordinator::OnHeartbeat(const Session& session) {
  MutexLock lock(mutex_);
  table_.Hear(session);
}

void Coordinator::OnUnknown(const Session& session, Done durable) {
  MutexLock lock(mutex_);
  if (table_.Hear(session) != nullptr) book_.Barrier(std::move(durable));
}

void Coordinator::OnRankStatus(const Session& session, const RankStatus& status, Done durable) {
  MutexLock lock(mutex_);
  Worker* worker = table_.Hear(session);
  if (worker == nullptr) return;
  const auto stale = worker->stale.find({status.job_id, status.rank});
  if (stale != worker->stale.end() && stale->second.epoch == status.epoch) {
    if (status.state == RankState::kExited) worker->stale.erase(stale);
    schedule_wanted_ = true;
    wake_();
  }
  // An order to start may arrive after its attempt has ended: it was sent once the placement was
  // durable, while the worker had been lost.
  StopIfStale(*worker, status);
  (void)book_.Apply(status.job_id, Event(ReportOf(session.worker_id, status)), std::move(durable));
  if (status.cause != ExitCause::kPeerLost) return;
  const Snapshot job = book_.Applied(status.job_id);
  if (job != nullptr && job->epoch == status.epoch && job->WasOn(session.worker_id)) {
    HearComplaint(*job);
  }
}

void Coordinator::HearComplaint(const Job& job) {
  for (const Rank& rank : job.ranks) {
    const Worker* worker = IsGone(rank.phase) ? nullptr : table_.Find(rank.worker_id);
    if (worker == nullptr || worker->link != nullptr) continue;
    // A worker that is expected back after a restart of this controller has until the end of its
    // grace.
    const absl::Duration until =
        worker->session == 0 ? worker->lease_end : clock_.Monotonic() + worker->lease;
    complaints_.try_emplace({job.id, rank.worker_id}, until);
  }
}

void Coordinator::OnStep(const Session& session, StepReport report, Done durable) {
  MutexLock lock(mutex_);
  if (table_.Hear(session) == nullptr) return;
  report.worker_id = session.worker_id;
  std::string device_model;
  if (const Snapshot job = book_.Published(report.job_id)) {
    device_model = DeviceModelOf(*job);
    // A rank that reports a step is ready, even if its report of that was lost.
    const uint32_t rank = report.rank;
    if (report.read_by_epoch == 0 && job->epoch == report.record.epoch &&
        rank < job->ranks.size() && job->ranks[rank].phase < RankPhase::kReady) {
      RankReported ready;
      ready.epoch = job->epoch;
      ready.rank = rank;
      ready.state = RankState::kReady;
      ready.worker_id = session.worker_id;
      (void)book_.Apply(job->id, Event(std::move(ready)));
    }
  }
  book_.RecordStep(report, device_model, std::move(durable));
}

void Coordinator::OnCheckpoint(const Session& session, CheckpointReport report, Done durable) {
  MutexLock lock(mutex_);
  if (table_.Hear(session) == nullptr) return;
  const std::string& job_id = report.id.job_id;
  CheckpointRecord& saved = report.checkpoint;
  if (saved.error) {
    const CheckpointFailed failed = {report.id.epoch, saved.step, session.worker_id, *saved.error};
    if (book_.Apply(job_id, Event(failed), std::move(durable)).ok()) {
      book_.RecordFailedCheckpoint(job_id);
    }
    return;
  }
  const Checkpoint checkpoint = {saved.step, report.id.epoch, saved.path, saved.size_bytes,
                                 report.time};
  CheckpointCommitted committed = {checkpoint, session.worker_id, std::move(saved.retained),
                                   saved.best};
  const absl::StatusOr<Snapshot> applied =
      book_.Apply(job_id, Event(std::move(committed)), std::move(durable));
  if (applied.ok()) {
    book_.RecordCheckpointDuration(job_id, checkpoint, absl::Seconds(saved.seconds));
  }
}

void Coordinator::OnLogs(const Session& session, const LogReport& report) {
  MutexLock lock(mutex_);
  if (table_.Hear(session) == nullptr) return;
  book_.AppendLogs(report.job_id, session.worker_id, report.lines);
}

bool Coordinator::MayMeet(const RendezvousValue& value, const Session& session) const {
  const Snapshot job = book_.Published(value.job_id);
  return job != nullptr && job->epoch == value.epoch && job->IsOn(session.worker_id);
}

void Coordinator::OnRendezvousSet(const Session& session, const RendezvousValue& value) {
  MutexLock lock(mutex_);
  if (table_.Hear(session) == nullptr) return;
  if (!MayMeet(value, session)) return;
  const absl::Status status = rendezvous_.Set(value.job_id, value.epoch, value.key, value.value);
  if (!status.ok()) LogWarning("rendezvous_refused", {{"error", status.message()}});
}

void Coordinator::OnRendezvousGet(const Session& session, const RendezvousValue& key) {
  MutexLock lock(mutex_);
  Worker* worker = table_.Hear(session);
  if (worker == nullptr) return;
  if (!MayMeet(key, session)) return;
  const absl::Status status = rendezvous_.Get(key.job_id, key.epoch, key.key, worker->link);
  if (!status.ok()) LogWarning("rendezvous_refused", {{"error", status.message()}});
}

void Coordinator::OnDraining(const Session& session) {
  MutexLock lock(mutex_);
  if (Worker* worker = table_.Hear(session)) {
    worker->state = WorkerState::kDraining;
    LogInfo("worker_draining", {{"worker", session.worker_id}});
  }
}

void Coordinator::Cancel(const std::string& job_id, const CancelRequested& request,
                         JobBook::SubmitDone done) {
  if (book_.store().full()) {
    return done(absl::UnavailableError("the disk does not keep up: try again later"));
  }
  const auto answer = [this, job_id, done = std::move(done)](const absl::Status& status) {
    status.ok() ? done(book_.Get(job_id)) : done(status);
  };
  // For ended or unknown jobs, `answer` gets the result from the book or the store.
  MutexLock lock(mutex_);
  (void)book_.Apply(job_id, Event(request), answer);
}

void Coordinator::OnPublished(const Snapshot& job) {
  MutexLock lock(mutex_);
  const bool active = job->state == JobState::kStarting || job->state == JobState::kRunning;
  if (!active) rendezvous_.Drop(job->id);
  const bool ending = job->state == JobState::kStopping || job->state == JobState::kRecovering;
  if (ending && !job->AllRanksGone() && job->stop_mode == StopMode::kCheckpoint) {
    stop_by_.try_emplace(job->id, clock_.Monotonic() + options_.stop_deadline);
  } else {
    stop_by_.erase(job->id);
  }
  if (job->storage_faults == 0 || job->state != JobState::kRecovering) {
    storage_retry_.erase(job->id);
  }
  Reconcile(*job);
  if (IsTerminal(job->state) || job->Placeable()) {
    schedule_wanted_ = true;
    wake_();
  }
}

void Coordinator::Reconcile(const Job& job) {
  const Snapshot shared = std::make_shared<const Job>(job);
  std::set<std::string> workers;
  for (const Rank& rank : job.ranks) {
    if (IsTerminal(job.state) || !IsGone(rank.phase)) workers.insert(rank.worker_id);
  }
  for (const std::string& worker_id : workers) Tell(worker_id, shared);
}

std::vector<std::string> Coordinator::RootsOf(const Job& job) const {
  const JobFacts& facts = job.spec->facts;
  if (!options_.roots_of) return facts.roots;
  const auto now = options_.roots_of(facts.name_space);
  // An empty list would mean that paths may lie anywhere.
  return now.ok() ? *now : facts.roots;
}

void Coordinator::Tell(const std::string& worker_id, const Snapshot& job) {
  Worker* worker = table_.Find(worker_id);
  if (worker == nullptr) return;
  if (IsTerminal(job->state)) {
    worker->told.erase(job->id);
    return;
  }
  if (worker->link == nullptr) return;
  const bool start = IsWanted(*job);
  const std::tuple<uint64_t, bool, StopMode> order(job->epoch, start, job->stop_mode);
  const auto told = worker->told.find(job->id);
  if (told != worker->told.end() && told->second == order) return;
  worker->told[job->id] = order;
  if (!start) {
    worker->link->Send(StopOrder{job->id, job->epoch, job->stop_mode});
    return;
  }
  StartOrder message;
  message.job_id = job->id;
  message.epoch = int64_t(job->epoch);
  message.world = int64_t(job->ranks.size());
  message.roots = RootsOf(*job);
  message.claimed = job->claimed;
  message.recorded_step = int64_t(job->furthest_checkpoint);
  message.history_after = int64_t(book_.HistoryUpTo(job->id));
  message.recorded_epoch = job->resumes.empty() ? 0 : int64_t(job->resumes.back().epoch);
  message.job_config = job->spec->config;
  message.submitted = job->spec->bytes;
  bool any_ordered = false;
  for (uint32_t i = 0; i < job->ranks.size(); ++i) {
    const Rank& rank = job->ranks[i];
    if (rank.worker_id != worker_id || IsGone(rank.phase)) continue;
    message.ranks.push_back({i, rank.device, rank.worker_id});
    any_ordered |= rank.phase == RankPhase::kOrdered;
  }
  if (any_ordered) worker->link->Send(std::move(message));
}

std::vector<Worker> Coordinator::Workers() const {
  MutexLock lock(mutex_);
  std::vector<Worker> list;
  for (const auto& [id, worker] : table_.workers()) {
    if (worker.session == 0) continue;  // It has not come back yet.
    list.push_back(worker);
    list.back().link = nullptr;
  }
  return list;
}

}  // namespace trainyard::controller
