#include "controller/jobs/job_state.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/epochs.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {

// An innocent rank that does not stop is killed by SIGKILL five seconds after the order. A signal
// that comes earlier is the fault itself, and a peer's complaint about it was reported first.
constexpr absl::Duration kCulpritWindow = absl::Seconds(4);
// What supersedes an attempt beyond it is a failure like others.
constexpr uint64_t kFurthestLeap = kMostEpoch / 2;

std::string WhoIsRank(const Job& job, uint32_t rank) {
  const Rank& r = job.ranks[rank];
  return absl::StrCat("rank ", rank, " on ", r.hostname, " (worker ", r.worker_id, ")");
}

std::string WhatHappened(const RankReported& report) {
  std::string text;
  switch (report.cause) {
    case ExitCause::kCompleted:
      text = "completed";
      break;
    case ExitCause::kStopped:
      text = "stopped";
      break;
    case ExitCause::kBadInput:
      text = "found bad input";
      break;
    case ExitCause::kNotFinite:
      text = "found a loss or gradient that is not finite";
      break;
    case ExitCause::kPeerLost:
      text = "lost a peer";
      break;
    case ExitCause::kDeviceError:
      text = "had a device error";
      break;
    case ExitCause::kSignal:
      text = absl::StrCat("was killed by signal ", report.signal);
      if (const char* name = ::strsignal(report.signal)) absl::StrAppend(&text, " (", name, ")");
      break;
    case ExitCause::kHung:
      text = "hung";
      break;
    case ExitCause::kStorage:
      text = "did not find its storage";
      break;
    case ExitCause::kSuperseded:
      text = "was superseded";
      break;
    default:
      text = absl::StrCat("exited with code ", report.exit_code);
  }
  // A killed rank has no last message. What others report about it only repeats the signal.
  if (!report.message.empty() && report.cause != ExitCause::kSignal) {
    absl::StrAppend(&text, ": ", report.message);
  }
  return text;
}

bool IsPermanent(ExitCause cause) {
  return cause == ExitCause::kBadInput || cause == ExitCause::kNotFinite;
}

bool IsActive(JobState state) {
  return state == JobState::kStarting || state == JobState::kRunning;
}

bool AllCompleted(const Job& job) {
  return std::all_of(job.ranks.begin(), job.ranks.end(),
                     [](const Rank& r) { return r.cause == ExitCause::kCompleted; });
}

void Finish(Job& job, JobState outcome, absl::Time time) {
  job.state = outcome;
  job.finish_time = time;
}

// Finishes the job if the last rank of an ending attempt is gone.
void Settle(Job& job, absl::Time time) {
  if (!job.AllRanksGone()) return;
  if (job.state == JobState::kStopping) {
    // If all ranks had completed when the cancel came, the job has succeeded.
    const bool done =
        job.outcome == JobState::kCancelled && !job.ranks.empty() && AllCompleted(job);
    Finish(job, done ? JobState::kSucceeded : job.outcome, time);
  } else if (IsActive(job.state) && AllCompleted(job)) {
    job.Explain("");
    Finish(job, JobState::kSucceeded, time);
  }
}

void Stop(Job& job, JobState outcome, StopMode mode, std::string reason,
          std::string consequence = "") {
  job.state = JobState::kStopping;
  job.outcome = outcome;
  job.stop_mode = mode;
  job.Explain(std::move(reason), std::move(consequence));
}

// Says which checkpoint is the newest. Rank 0 of the next attempt reports which it could use.
std::string ResumePoint(const Job& job) {
  return job.checkpoints.empty()
             ? "there is no checkpoint yet"
             : absl::StrCat("the newest checkpoint is of step ", job.checkpoints.back().step);
}

std::string BeginsWith(uint64_t resumed_step) {
  return resumed_step == 0 ? "starting from the beginning"
                           : absl::StrCat("resuming from the checkpoint of step ", resumed_step);
}

// Says since when restarts are counted: since the last progress.
std::string SinceProgress(const Job& job) {
  return job.furthest_checkpoint == 0
             ? "without any checkpoint"
             : absl::StrCat("since the checkpoint of step ", job.furthest_checkpoint);
}

// Ends the attempt. `counts`: the restart counts as one without progress.
void EndAttempt(Job& job, std::string reason, bool counts, StopMode mode, absl::Time time) {
  job.attempt_end_time = time;
  const uint32_t limit = job.spec->facts.max_restarts;
  if (counts && job.restarts_without_progress >= limit) {
    Stop(job, JobState::kFailed, StopMode::kKill, std::move(reason),
         absl::StrCat("; no restart left (", limit, " ", SinceProgress(job), ")"));
    return;
  }
  if (counts) ++job.restarts_without_progress;
  job.state = JobState::kRecovering;
  job.stop_mode = mode;
  std::string consequence = absl::StrCat("; ", ResumePoint(job));
  if (counts) {
    absl::StrAppend(&consequence, " (restart ", job.restarts_without_progress, " of ", limit, " ",
                    SinceProgress(job), ")");
  }
  job.Explain(std::move(reason), std::move(consequence));
}

// Ends an attempt for a reason that does not count against the limit. Peers notice the end of a
// rank before its own report comes. If such a complaint has ended the attempt already, its restart
// is not counted any more.
void EndAttemptUncounted(Job& job, const std::string& reason, StopMode mode, absl::Time time) {
  const bool blamed_a_peer = job.culprit == ExitCause::kPeerLost;
  if (blamed_a_peer && job.state == JobState::kRecovering) {
    // The count is 0 if a checkpoint has been reported in between.
    if (job.restarts_without_progress > 0) --job.restarts_without_progress;
    EndAttempt(job, reason, false, StopMode::kKill, time);
    job.culprit = ExitCause::kNone;
  } else if (IsActive(job.state) || (blamed_a_peer && job.state == JobState::kStopping &&
                                     job.outcome == JobState::kFailed)) {
    EndAttempt(job, reason, false, mode, time);
    job.culprit = ExitCause::kNone;
  }
}

// Whether a rank has ended the attempt and the other ranks are being stopped. A cancel by the user
// has its own reason and is excluded.
bool IsUndoing(const Job& job) {
  return job.state == JobState::kRecovering ||
         (job.state == JobState::kStopping && job.outcome == JobState::kFailed);
}

// Whether this report names the culprit of an attempt that so far is blamed on a lost peer: the
// peer's own report has come.
bool NamesTheCulprit(const Job& job, const RankReported& report, absl::Time time) {
  if (!IsUndoing(job) || job.culprit != ExitCause::kPeerLost) return false;
  switch (report.cause) {
    case ExitCause::kSignal:
      return report.signal != SIGTERM && time - job.attempt_end_time < kCulpritWindow;
    case ExitCause::kHung:
      return true;
    case ExitCause::kDeviceError:
    case ExitCause::kOther:
      return time - job.attempt_end_time < kCulpritWindow;
    default:
      return false;
  }
}

// Whether this is the first rank that lost the culprit. Its report says in which collective; a rank
// that was killed cannot. The rank's cause is already set here.
bool IsWitness(const Job& job, const RankReported& report) {
  if (!IsUndoing(job) || job.culprit == ExitCause::kNone || IsPermanent(job.culprit)) return false;
  return report.cause == ExitCause::kPeerLost && job.culprit != ExitCause::kPeerLost &&
         std::count_if(job.ranks.begin(), job.ranks.end(),
                       [](const Rank& r) { return r.cause == ExitCause::kPeerLost; }) == 1;
}

void Strike(Job& job, const std::string& worker_id) { ++job.strikes[worker_id]; }

// Whether this cause of an attempt's end counts against the rank's host.
bool IsStrike(ExitCause cause) {
  switch (cause) {
    case ExitCause::kDeviceError:
    case ExitCause::kSignal:
    case ExitCause::kHung:
    case ExitCause::kOther:
      return true;
    default:
      return false;
  }
}

// Storage is never the job's fault, however often it fails.
void StorageFailed(Job& job, const Rank& rank, const std::string& reason, absl::Time time) {
  if (!IsActive(job.state) && !IsUndoing(job)) return;
  const auto told = std::count_if(job.ranks.begin(), job.ranks.end(),
                                  [](const Rank& r) { return r.cause == ExitCause::kStorage; });
  if (told == 1) ++job.storage_faults;
  job.strikes[rank.worker_id] = std::max(job.strikes[rank.worker_id] + 1, kMostStrikes);
  EndAttemptUncounted(job, reason, StopMode::kKill, time);
}

// The directory has later attempts than the controller knows: the store is an older copy. They may
// be far ahead, so the epoch leaps.
void SupersededInStorage(Job& job, const std::string& reason, absl::Time time) {
  job.epoch_floor = std::max(job.epoch_floor, std::min(16 * job.epoch + 64, kFurthestLeap));
  EndAttemptUncounted(job, reason, StopMode::kKill, time);
}

void RankExited(Job& job, const RankReported& report, absl::Time time) {
  Rank& rank = job.ranks[report.rank];
  rank.phase = RankPhase::kExited;
  rank.cause = report.cause;
  const std::string reason = absl::StrCat(WhoIsRank(job, report.rank), " ", WhatHappened(report));
  if (report.cause == ExitCause::kStorage) {
    StorageFailed(job, rank, reason, time);
  } else if (report.cause == ExitCause::kSuperseded && job.epoch < kFurthestLeap) {
    SupersededInStorage(job, reason, time);
  } else if (IsPermanent(report.cause) &&
             (IsActive(job.state) || job.state == JobState::kRecovering)) {
    job.attempt_end_time = time;
    job.culprit = report.cause;
    Stop(job, JobState::kFailed, StopMode::kKill, reason);
  } else if (report.cause == ExitCause::kStopped &&
             (IsActive(job.state) || (report.signal != 0 && job.state == JobState::kRecovering))) {
    // With a signal: the worker ended and killed the rank. A peer may have reported that first.
    EndAttemptUncounted(job, reason + " because its machine drains", StopMode::kCheckpoint, time);
  } else if (IsActive(job.state) && report.cause != ExitCause::kCompleted) {
    job.culprit = report.cause;
    if (IsStrike(report.cause)) Strike(job, rank.worker_id);
    EndAttempt(job, reason, true, StopMode::kKill, time);
  } else if (NamesTheCulprit(job, report, time)) {
    job.culprit = report.cause;
    if (IsStrike(report.cause)) Strike(job, rank.worker_id);
    job.Explain(absl::StrCat(reason, " (", job.happened, ")"), job.consequence);
  } else if (IsWitness(job, report)) {
    job.Explain(absl::StrCat(job.happened, " (", reason, ")"), job.consequence);
  }
  Settle(job, time);
}

absl::Status On(Job& job, const Placed& placed, absl::Time time) {
  if (!job.Placeable()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id, " is ", Name(job.state), " and cannot be placed"));
  }
  CHECK(placed.ranks.size() == job.spec->facts.ranks)
      << placed.ranks.size() << " placed, " << job.spec->facts.ranks << " wanted";
  if (job.state == JobState::kRecovering) ++job.restarts;
  if (!job.start_time) job.start_time = time;
  job.epoch = std::max(job.epoch, job.epoch_floor) + 1;
  for (const Rank& rank : job.ranks) job.earlier_workers.insert(rank.worker_id);
  job.ranks = placed.ranks;
  job.resumed_step.reset();
  job.culprit = ExitCause::kNone;
  job.state = JobState::kStarting;
  job.Explain("");
  return absl::OkStatus();
}

// Progress is a checkpoint of a later step than all earlier ones.
void NoteProgress(Job& job, uint64_t checkpoint_step) {
  if (checkpoint_step <= job.furthest_checkpoint) return;
  job.furthest_checkpoint = checkpoint_step;
  job.restarts_without_progress = 0;
  job.storage_faults = 0;
}

// Workers may report anything. What cannot be is left out.
void NoteBest(Job& job, const std::optional<BestCheckpoint>& best) {
  job.best_checkpoint = best;
  if (best && (best->epoch > job.epoch || !std::isfinite(best->validation_loss))) {
    job.best_checkpoint.reset();
  }
}

void NoteResume(Job& job, const Resume& resume) {
  std::erase_if(job.resumes, [&](const Resume& earlier) {
    return earlier.step >= resume.step || earlier.epoch >= resume.epoch;
  });
  job.resumes.push_back(resume);
}

// Updates the job with what rank 0 has read from the directory. The directory may contain more than
// the record: a host that never came back may have saved a checkpoint.
void TakeStock(Job& job, const StartRecord& resumed, absl::Time time) {
  // Workers may report anything. What contradicts the record is left out.
  const uint64_t step = std::min(resumed.step, job.spec->facts.steps);
  const uint64_t known = job.resumes.empty() ? 0 : job.resumes.back().epoch;
  for (const AttemptStart& start : resumed.earlier_starts) {
    const bool fits = start.epoch > known && start.epoch < job.epoch && start.step <= step;
    if (fits) NoteResume(job, {start.epoch, start.step});
  }
  NoteResume(job, {job.epoch, step});
  job.resumed_step = step;
  job.progress.ResumeFrom(step);
  NoteProgress(job, step);
  if (job.spec->facts.checkpoint_directory.empty()) return;
  job.claimed = true;
  // A rank that could not list its directory knows of no best one.
  if (resumed.best || !resumed.loadable.empty() || step == 0) NoteBest(job, resumed.best);
  if (resumed.loadable.empty()) return;
  std::vector<Checkpoint> listed;
  for (auto c = resumed.loadable.rbegin(); c != resumed.loadable.rend(); ++c) {
    const auto known =
        std::find_if(job.checkpoints.begin(), job.checkpoints.end(),
                     [&](const Checkpoint& k) { return k.epoch == c->epoch && k.step == c->step; });
    listed.push_back(known != job.checkpoints.end()
                         ? *known
                         : Checkpoint{c->step, c->epoch, c->path, c->size_bytes, time});
  }
  job.checkpoints = std::move(listed);
}

absl::Status On(Job& job, const RankReported& report, absl::Time time) {
  RETURN_IF_ERROR(CheckFence(job, report.epoch, report.rank, report.worker_id));
  Rank& rank = job.ranks[report.rank];
  const auto told_before = [&] {
    return absl::AlreadyExistsError(
        absl::StrCat("job ", job.id, " rank ", report.rank, " said so before"));
  };
  if (rank.phase == RankPhase::kExited) return told_before();
  if (report.state == RankState::kExited) {
    RankExited(job, report, time);
    return absl::OkStatus();
  }
  const RankPhase phase =
      report.state == RankState::kReady ? RankPhase::kReady : RankPhase::kStarting;
  if (rank.phase >= phase) return told_before();
  rank.phase = phase;
  if (report.resumed) TakeStock(job, *report.resumed, time);
  const bool all_ready = std::all_of(job.ranks.begin(), job.ranks.end(), [](const Rank& r) {
    return r.phase == RankPhase::kReady || r.cause == ExitCause::kCompleted;
  });
  if (job.state == JobState::kStarting && all_ready) job.state = JobState::kRunning;
  return absl::OkStatus();
}

absl::Status RanksLost(Job& job, const std::vector<uint32_t>& lost, const std::string& how,
                       absl::Time time) {
  if (lost.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id, " has no such rank alive"));
  }
  for (const uint32_t rank : lost) job.ranks[rank].phase = RankPhase::kLost;
  Strike(job, job.ranks[lost.front()].worker_id);
  std::string reason = absl::StrCat(WhoIsRank(job, lost.front()), " ", how);
  if (job.culprit == ExitCause::kPeerLost && IsUndoing(job)) {
    absl::StrAppend(&reason, " (", job.happened, ")");
  }
  EndAttemptUncounted(job, reason, StopMode::kKill, time);
  Settle(job, time);
  return absl::OkStatus();
}

absl::Status On(Job& job, const WorkerGone& gone, absl::Time time) {
  std::vector<uint32_t> lost;
  for (uint32_t i = 0; i < job.ranks.size(); ++i) {
    if (job.ranks[i].worker_id == gone.worker_id && !IsGone(job.ranks[i].phase)) lost.push_back(i);
  }
  return RanksLost(job, lost, "was lost with its worker", time);
}

absl::Status On(Job& job, const RankVanished& vanished, absl::Time time) {
  std::vector<uint32_t> lost;
  if (vanished.epoch == job.epoch && vanished.rank < job.ranks.size() &&
      !IsGone(job.ranks[vanished.rank].phase)) {
    // The attempt is over, and the order never arrived. That is no fault of the rank's host.
    if (job.ranks[vanished.rank].phase == RankPhase::kOrdered && IsUndoing(job)) {
      job.ranks[vanished.rank].phase = RankPhase::kLost;
      Settle(job, time);
      return absl::OkStatus();
    }
    lost.push_back(vanished.rank);
  }
  return RanksLost(job, lost, "was gone when its worker came back", time);
}

absl::Status On(Job& job, const CheckpointCommitted& committed, absl::Time) {
  const Checkpoint& c = committed.checkpoint;
  RETURN_IF_ERROR(CheckFence(job, c.epoch, 0, committed.worker_id));
  // The steps of an attempt only grow.
  if (!job.checkpoints.empty() && job.checkpoints.back().epoch == c.epoch &&
      c.step <= job.checkpoints.back().step) {
    return absl::AlreadyExistsError(absl::StrCat("checkpoint ", c.path, " was recorded"));
  }
  NoteProgress(job, c.step);
  if (committed.best || !committed.retained.empty()) NoteBest(job, committed.best);
  job.claimed = true;
  // Compares attempt and step, because machines may spell the path of a checkpoint differently.
  const auto removed = [&](const Checkpoint& known) {
    return std::none_of(
        committed.retained.begin(), committed.retained.end(),
        [&](const CheckpointId& id) { return id.epoch == known.epoch && id.step == known.step; });
  };
  if (!committed.retained.empty()) std::erase_if(job.checkpoints, removed);
  job.checkpoints.push_back(c);
  if (job.checkpoints.size() > kMaxCheckpoints) job.checkpoints.erase(job.checkpoints.begin());
  return absl::OkStatus();
}

absl::Status On(Job& job, const CheckpointFailed& failed, absl::Time) {
  return CheckFence(job, failed.epoch, 0, failed.worker_id);
}

absl::Status On(Job& job, const CancelRequested& cancel, absl::Time time) {
  if (IsTerminal(job.state) ||
      (job.state == JobState::kStopping && job.outcome == JobState::kCancelled)) {
    return absl::AlreadyExistsError(absl::StrCat("job ", job.id, " is ", Name(job.state)));
  }
  const std::string reason =
      cancel.reason.empty() ? "cancelled" : absl::StrCat("cancelled: ", cancel.reason);
  // A failed job that still waits for its ranks stays failed, because the failure came first.
  if (job.state == JobState::kStopping) {
    return absl::AlreadyExistsError(absl::StrCat("job ", job.id, " is stopping"));
  }
  const bool save =
      job.state == JobState::kRunning && !job.spec->facts.checkpoint_directory.empty();
  job.attempt_end_time = time;
  Stop(job, JobState::kCancelled, save ? StopMode::kCheckpoint : StopMode::kKill, reason);
  Settle(job, time);
  return absl::OkStatus();
}

absl::Status On(Job& job, const StopOverdue&, absl::Time) {
  const bool stopping = job.state == JobState::kStopping || job.state == JobState::kRecovering;
  if (!stopping || job.AllRanksGone() || job.stop_mode == StopMode::kKill) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is not checkpointing"));
  }
  job.stop_mode = StopMode::kKill;
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFence(const Job& job, uint64_t epoch, uint32_t rank,
                        const std::string& worker_id) {
  if (IsTerminal(job.state) || epoch != job.epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id, " is ", Name(job.state), " at epoch ", job.epoch, ", not epoch ", epoch));
  }
  if (rank >= job.ranks.size() || job.ranks[rank].worker_id != worker_id ||
      job.ranks[rank].phase == RankPhase::kLost) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id, " rank ", rank, " does not run on worker ", worker_id));
  }
  return absl::OkStatus();
}

absl::Status CheckStepFence(const Job& job, uint64_t epoch, uint64_t step, uint32_t rank,
                            const std::string& worker_id) {
  if (epoch > job.epoch || rank >= job.spec->facts.ranks) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", Name(job.state),
                                                      " at epoch ", job.epoch, ", and has no step ",
                                                      step, " of epoch ", epoch));
  }
  if (epoch == job.epoch) {
    // A job that was never placed has no ranks.
    if (rank < job.ranks.size() && job.ranks[rank].worker_id == worker_id) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id, " rank ", rank, " does not run on worker ", worker_id));
  }
  if (!job.WasOn(worker_id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id, " never ran on worker ", worker_id));
  }
  const Resume* const successor = SupersededBy(job.resumes, epoch, step);
  if (successor == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.id, " resumed from step ", successor->step, " at epoch ",
                   successor->epoch, ": step ", step, " of epoch ", epoch, " is moot"));
}

absl::StatusOr<Job> Apply(const Job& job, const JobEvent& event) {
  Job next = job;
  RETURN_IF_ERROR(
      std::visit([&](const auto& what) { return On(next, what, event.time); }, event.what));
  return next;
}

std::vector<EventRecord> EventsOf(const Job& before, const JobEvent& event, const Job& after) {
  std::vector<EventRecord> events;
  const auto add = [&](EventType type, std::string message) {
    events.push_back({event.time, type, after.epoch, std::move(message)});
  };
  if (std::holds_alternative<Placed>(event.what)) {
    std::vector<std::string> hosts;
    for (const Rank& rank : after.ranks) hosts.push_back(rank.worker_id);
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    std::string text =
        absl::StrCat(after.ranks.size(), after.ranks.size() == 1 ? " rank on" : " ranks on");
    for (const std::string& host : hosts) absl::StrAppend(&text, " ", host);
    add(EventType::kPlaced, text);
  } else if (const auto* report = std::get_if<RankReported>(&event.what)) {
    if (report->state == RankState::kExited) {
      add(EventType::kRankExited,
          absl::StrCat(WhoIsRank(after, report->rank), " ", WhatHappened(*report)));
    }
    if (report->resumed) {
      for (const std::string& reason : report->resumed->refused) {
        add(EventType::kWarning,
            absl::StrCat("checkpoint refused: ", reason, "; ", BeginsWith(report->resumed->step)));
      }
    }
  } else if (const auto* gone = std::get_if<WorkerGone>(&event.what)) {
    add(EventType::kWorkerLost, absl::StrCat("worker ", gone->worker_id, " holds no lease"));
  } else if (const auto* vanished = std::get_if<RankVanished>(&event.what)) {
    add(EventType::kWarning,
        absl::StrCat(WhoIsRank(after, vanished->rank), " was gone when its worker came back"));
  } else if (const auto* committed = std::get_if<CheckpointCommitted>(&event.what)) {
    add(EventType::kCheckpointed,
        absl::StrCat("step ", committed->checkpoint.step, " in ", committed->checkpoint.path));
  } else if (const auto* failed = std::get_if<CheckpointFailed>(&event.what)) {
    add(EventType::kWarning, absl::StrCat("the save after step ", failed->step,
                                          " failed: ", failed->error, "; training goes on"));
  } else if (std::holds_alternative<CancelRequested>(event.what)) {
    add(EventType::kCancelRequested, after.state_reason);
  } else if (std::holds_alternative<StopOverdue>(event.what)) {
    add(EventType::kWarning, "ranks did not checkpoint and stop in time: killing them");
  }
  // The first report of a failure often names a consequence, such as a peer's lost connection. Once
  // the culprit's own report has come, the events say how the attempt ended, as the job does.
  const bool better_known = after.state == before.state && after.culprit != before.culprit;
  if (better_known && after.state == JobState::kRecovering) {
    add(EventType::kRecovering, after.state_reason);
  }
  if (after.state == before.state) return events;
  if (after.state == JobState::kRunning) {
    add(EventType::kRunning,
        absl::StrCat("every rank is ready",
                     after.resumed_step ? "; " + BeginsWith(*after.resumed_step) : ""));
  }
  if (after.state == JobState::kRecovering) add(EventType::kRecovering, after.state_reason);
  if (IsTerminal(after.state)) {
    add(EventType::kFinished,
        absl::StrCat(Name(after.state), after.state_reason.empty() ? "" : ": ",
                     after.state_reason));
  }
  return events;
}

}  // namespace trainyard::controller
