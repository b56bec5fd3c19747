#include "tests/simulation/checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/jobs/job_id.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"

namespace trainyard::simulation {
namespace {

// How long what a fault has begun may go on once it is over.
constexpr absl::Duration kAftermath = absl::Seconds(20);

// Epochs of a job between two looks.
constexpr uint64_t kMostUnseen = 10;

}  // namespace

void Checks::ExcuseMachine(const std::string& machine, absl::Duration lasting) {
  windows_.emplace(machine, std::make_pair(queue_.now(), queue_.now() + lasting + kAftermath));
}

void Checks::ControllerStoodStill(absl::Duration away) {
  for (auto& [machine, window] : windows_) {
    if (window.second >= queue_.now() - away) window.second += away;
  }
}

Checks::StepKey Checks::KeyOf(const v1::StepReport& step) {
  return {step.job_id(), step.record().epoch(), step.record().step(), step.rank(),
          step.read_by_epoch()};
}

void Checks::OnRefused(const v1::ConnectRequest& request) {
  if (request.has_step()) refused_.insert(KeyOf(request.step()));
}

void Checks::OnAcknowledged(PumpedStore& store, const v1::ConnectRequest& request) {
  if (!request.has_step() || refused_.contains(KeyOf(request.step()))) return;
  const v1::StepReport& step = request.step();
  const auto number = controller::JobNumber(step.job_id());
  if (number && store.HoldsStep(*number, step.record().epoch(), step.record().step(), step.rank()))
    return;
  queue_.Fail(absl::StrCat("step ", step.record().step(), " of ", step.job_id(), ".",
                           step.record().epoch(), " rank ", step.rank(),
                           " is acknowledged, and neither stored nor refused"));
}

// A rank that lost a peer ends the wait for every machine whose daemon is away.
void Checks::OnHeard(const v1::ConnectRequest& request) {
  if (!request.has_rank_status() || request.rank_status().cause() != v1::EXIT_CAUSE_PEER_LOST) {
    return;
  }
  for (const auto& machine : machines_) {
    const bool there = machine->daemon() != nullptr && machine->daemon()->registered();
    if (!there) ExcuseMachine(machine->id(), absl::ZeroDuration());
  }
}

// A controller that starts waits for daemons for its grace alone.
void Checks::OnStarted() {
  for (const auto& machine : machines_) {
    if (machine->daemon() == nullptr) ExcuseMachine(machine->id(), absl::ZeroDuration());
  }
}

bool Checks::Excused(const Seen& attempt) const {
  if (excused_.contains({attempt.job->id, attempt.job->epoch})) return true;
  for (const controller::Rank& rank : attempt.job->ranks) {
    const auto [first, last] = windows_.equal_range(rank.worker_id);
    const bool during = std::any_of(
        first, last, [&](const auto& window) { return window.second.second >= attempt.placed; });
    if (during) return true;
  }
  return false;
}

void Checks::CheckAttempt(ControllerProcess& controller, const controller::Snapshot& job) {
  if (job->epoch == 0) return;
  // It may have been placed long before the first look: the controller was away.
  const auto [seen, fresh] = seen_.try_emplace(job->id, Seen{job, absl::ZeroDuration()});
  if (fresh) return;
  const uint64_t before = seen->second.job->epoch;
  if (before == job->epoch) {
    seen->second.job = job;
    return;
  }
  // A few may have passed between two looks; a leap says that the store has lost epochs.
  if (job->epoch > before + kMostUnseen) {
    queue_.Fail(absl::StrCat("job ", job->id, " went from epoch ", before, " to ", job->epoch));
  }
  if (!Excused(seen->second)) {
    const auto events = controller.store().ReadEvents(job->number);
    for (const auto& event : *events) {
      queue_.Trace("event of ", job->id, ".", event.epoch, ": ", event.message);
    }
    queue_.Fail(absl::StrCat("job ", job->id, " was restarted after epoch ", before,
                             " although nothing hit its ranks"));
  }
  seen->second = Seen{job, queue_.now()};
}

void Checks::OnTick(ControllerProcess& controller) {
  std::map<std::pair<std::string, uint32_t>, std::string> held;
  for (const controller::Snapshot& live : controller.book().Live()) {
    const controller::Snapshot job = controller.book().Published(live->id);
    if (job == nullptr) continue;
    CheckAttempt(controller, job);
    for (const controller::Rank& rank : job->ranks) {
      if (IsGone(rank.phase)) continue;
      const auto [holder, free] = held.try_emplace({rank.worker_id, rank.device}, job->id);
      if (!free) {
        queue_.Fail(absl::StrCat("device ", rank.device, " of ", rank.worker_id, " is held by ",
                                 holder->second, " and ", job->id));
      }
    }
  }
}

void Checks::OnCommitted(const std::string& job_id, const JobPlan& plan, int64_t epoch,
                         int64_t step) {
  const auto lineage = ReadLineage(absl::StrCat(share_, "/", plan.directory));
  if (!lineage.ok() || lineage->stretches.empty()) {
    return queue_.Fail(absl::StrCat("no lineage of ", job_id, ": ", lineage.status().ToString()));
  }
  const bool superseded = lineage->stretches.front().epoch > epoch;
  if (superseded && lineage->Holds(epoch, step)) {
    queue_.Fail(absl::StrCat("step ", step, " of ", job_id, ".", epoch,
                             " was saved by a superseded attempt, and is loadable"));
  }
}

void Checks::AtEnd(ControllerProcess& controller, const std::map<std::string, JobPlan>& jobs) {
  const auto all = controller.store().ListJobs({}, 0, 1000);
  if (!all.ok() || all->size() != jobs.size()) {
    queue_.Fail(absl::StrCat(jobs.size(), " jobs were acknowledged, and ",
                             all.ok() ? absl::StrCat(all->size()) : all.status().ToString(),
                             " are stored"));
  }
  for (const auto& machine : machines_) {
    if (machine->gone) continue;
    if (machine->daemon() == nullptr || machine->daemon()->num_reports() > 0) {
      queue_.Fail(absl::StrCat(machine->id(), " has reports that nobody acknowledged"));
    }
    for (const auto& [id, folder] : machine->folders()) {
      if (folder.process != nullptr && folder.process->process().alive()) {
        queue_.Fail(absl::StrCat("rank ", id.Name(), " runs on after its job's end"));
      }
    }
  }
  for (const auto& [id, plan] : jobs) CheckJob(controller, id, plan);
}

void Checks::CheckJob(ControllerProcess& controller, const std::string& id, const JobPlan& plan) {
  const auto job = controller.book().Get(id);
  if (!job.ok()) return queue_.Fail(absl::StrCat("job ", id, ": ", job.status().ToString()));
  if ((*job)->state != controller::JobState::kSucceeded) {
    return queue_.Fail(
        absl::StrCat("job ", id, " is ", Name((*job)->state), ": ", (*job)->state_reason));
  }
  CheckHistory(controller, **job, plan);
  if (plan.saves) CheckDirectory(id, plan);
}

void Checks::CheckHistory(ControllerProcess& controller, const controller::Job& job,
                          const JobPlan& plan) {
  const auto fail = [&](uint64_t step, const std::string& what) {
    queue_.Fail(absl::StrCat("history of ", job.id, ", step ", step, ": ", what));
  };
  const auto steps = controller.store().ReadSteps(job.number, 0, 1'000'000);
  if (!steps.ok()) return fail(0, steps.status().ToString());
  Lineage lineage;
  if (plan.saves) lineage = *ReadLineage(absl::StrCat(share_, "/", plan.directory));
  uint64_t state = plan.initial(), want = 0;
  for (const controller::JobStep& record : *steps) {
    state = plan.Next(state, ++want);
    if (record.step != want) return fail(want, absl::StrCat("found step ", record.step));
    if (!record.complete) return fail(want, "not told by all ranks");
    if (record.loss != JobPlan::LossOf(state)) return fail(want, "another loss");
    const auto run_by =
        std::find_if(lineage.stretches.rbegin(), lineage.stretches.rend(),
                     [&](const Stretch& stretch) { return int64_t(want) <= stretch.last_step; });
    if (plan.saves && run_by->epoch != int64_t(*record.epoch)) {
      return fail(want, absl::StrCat("told by epoch ", *record.epoch, ", which is not its place; ",
                                     "epoch ", run_by->epoch, " ran it"));
    }
  }
  if (want != plan.steps) fail(want, absl::StrCat("the last one of ", plan.steps));
}

void Checks::CheckDirectory(const std::string& id, const JobPlan& plan) {
  const auto fail = [&](const std::string& what) {
    queue_.Fail(absl::StrCat("checkpoints of ", id, ": ", what));
  };
  const auto listed = LoadableCheckpoints(absl::StrCat(share_, "/", plan.directory));
  if (!listed.ok() || listed->empty())
    return fail(absl::StrCat("none, ", listed.status().ToString()));
  if (listed->front().step != int64_t(plan.steps))
    return fail("the newest is not of the last step");
  for (const ListedCheckpoint& c : *listed) {
    const auto opened = Checkpoint::Open(c.path);
    if (!opened.ok()) return fail(opened.status().ToString());
    uint64_t state = 0;
    const TargetBox box = {"state",  TensorKind::kParameter, DType::kF64,
                           Shape{1}, WholeBox(Shape{1}),     &state};
    if (const absl::Status loaded = opened->Load({&box, 1}); !loaded.ok()) {
      return fail(loaded.ToString());
    }
    if (state != plan.StateAfter(uint64_t(c.step)) || opened->state().data_position != 8 * c.step) {
      return fail(absl::StrCat("step ", c.step, " of epoch ", c.epoch,
                               " is not what the samples up to there make"));
    }
  }
}

}  // namespace trainyard::simulation
