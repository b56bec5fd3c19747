// The table of ranks of a daemon: what worker/daemon/daemon.cc and rank.cc do.

#include <algorithm>
#include <utility>

#include "tests/simulation/machine.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

RankExit KilledBy(int signal, std::string message) {
  return {.cause = ExitCause::kSignal, .signal = signal, .message = std::move(message)};
}

}  // namespace

DaemonProcess::DaemonProcess(const MachineWorld& world, Machine& machine, std::string instance)
    : world_(world), machine_(machine), instance_(std::move(instance)), process_(world.queue) {
  Adopt();
  Dial();
}

void DaemonProcess::Adopt() {
  for (auto& [id, folder] : machine_.folders()) {
    if (folder.exists && !folder.reported) AdoptRank(id, folder);
  }
}

// Steps first: a checkpoint is never reported before its step.
void DaemonProcess::AdoptRank(const RankId& id, RankFolder& folder) {
  Rank& rank = ranks_[id];
  rank.device = folder.device;
  rank.phase = Phase::kRunning;
  for (const channel::Step& step : folder.steps) rank.last_step = outbox_.Add(StepReport{id, step});
  for (const channel::Checkpoint& saved : folder.checkpoints) {
    rank.last_checkpoint = outbox_.Add(CheckpointReport{id, saved, world_.queue.clock().Now()});
  }
  if (folder.process != nullptr && folder.process->process().alive()) {
    process_.After(world_.queue.Between({}, absl::Milliseconds(100)),
                   [rank = folder.process] { rank->Reconnect(); });
  } else {
    PollEnd(id);
  }
}

RankStatus DaemonProcess::StatusOf(const RankId& id) const {
  const Rank& rank = ranks_.at(id);
  if (rank.phase == Phase::kExited) return {id, rank.exit, rank.device, RankState::kExited};
  const auto& ready = machine_.folder(id).ready;
  return {id, {}, rank.device, ready ? RankState::kReady : RankState::kStarting, ready};
}

void DaemonProcess::StartRanks(const StartOrder& order) {
  if (order.epoch > 0) StopRanks({order.job_id, uint64_t(order.epoch - 1), StopMode::kKill});
  for (const RankPlacement& wanted : order.ranks) {
    const RankId id = {order.job_id, uint64_t(order.epoch), wanted.rank};
    if (ranks_.contains(id)) {
      outbox_.Add(StatusOf(id));  // Said again: the controller may not know.
      continue;
    }
    const auto known = machine_.folders().find(id);
    if (known != machine_.folders().end() && known->second.exit_report) {
      outbox_.Add(RankStatus{id, *known->second.exit_report, wanted.device, RankState::kExited});
      continue;
    }
    const bool superseded = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
      return other.first.job_id == id.job_id && other.first.epoch > id.epoch;
    });
    if (superseded) {
      const RankExit exit = {.cause = ExitCause::kStopped, .message = "superseded"};
      outbox_.Add(RankStatus{id, exit, wanted.device, RankState::kExited});
      continue;
    }
    ranks_[id].order = order;
    ranks_[id].device = wanted.device;
  }
  LaunchWaiting();
}

void DaemonProcess::LaunchWaiting() {
  for (auto& [id, rank] : ranks_) {
    if (rank.phase != Phase::kWaiting) continue;
    const bool taken = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
      return other.second.phase == Phase::kRunning && other.second.device == rank.device;
    });
    if (!taken) Launch(id);
  }
}

void DaemonProcess::Launch(const RankId& id) {
  Rank& rank = ranks_.at(id);
  rank.phase = Phase::kRunning;
  world_.queue.Trace("rank ", id.Name(), " starts on ", machine_.id());
  const std::shared_ptr<Attempt> attempt = world_.attempt_of(rank.order);
  RankFolder& folder = machine_.folder(id);
  folder.exists = true;
  folder.device = rank.device;
  folder.process = std::make_shared<RankProcess>(world_.queue, machine_, id, attempt);
  outbox_.Add(StatusOf(id));
  attempt->Join(folder.process);
}

// The end of a process is seen by the next look at it.
void DaemonProcess::PollEnd(const RankId& id) {
  process_.After(world_.queue.Between({}, kPoll), [this, id] {
    const auto found = ranks_.find(id);
    if (found == ranks_.end() || found->second.phase != Phase::kRunning) return;
    RankFolder& folder = machine_.folder(id);
    RankExit exit =
        folder.exit_report.value_or(KilledBy(9, "its supervisor ended without a report"));
    if (!found->second.hung.empty() && exit.cause != ExitCause::kCompleted) {
      exit = {.cause = ExitCause::kHung, .message = found->second.hung};
    }
    for (const channel::Message& message : folder.unsent) OnMessage(id, message);
    Exited(id, exit);
  });
}

void DaemonProcess::Exited(const RankId& id, const RankExit& exit) {
  Rank& rank = ranks_.at(id);
  rank.exit = exit;
  rank.phase = Phase::kExited;
  machine_.folder(id).exists = true;
  machine_.folder(id).device = rank.device;
  machine_.folder(id).exit_report = exit;
  rank.exit_sequence = outbox_.Add(StatusOf(id));
  LaunchWaiting();
  Flush();
}

void DaemonProcess::StopRanks(const StopOrder& order) {
  std::vector<RankId> meant;
  for (const auto& [id, rank] : ranks_) {
    if (id.job_id == order.job_id && id.epoch <= order.epoch) meant.push_back(id);
  }
  for (const RankId& id : meant) {
    if (order.mode == StopMode::kKill) Kill(id);
  }
}

void DaemonProcess::Kill(const RankId& id) {
  Rank& rank = ranks_.at(id);
  if (rank.phase == Phase::kWaiting) {
    return Exited(id, {.cause = ExitCause::kStopped, .message = "stopped before it was started"});
  }
  if (rank.phase != Phase::kRunning || std::exchange(rank.kill_ordered, true)) return;
  // SIGTERM, and SIGKILL five seconds later; both by the supervisor, whatever becomes of the
  // daemon, and even of a process that stands still.
  const bool stubborn = world_.queue.Chance(0.5);
  const absl::Duration delay =
      stubborn ? absl::Seconds(5) : world_.queue.Between({}, absl::Seconds(1));
  const std::shared_ptr<RankProcess> process = machine_.folder(id).process;
  if (process == nullptr) return;
  world_.queue.After(
      delay, [process, stubborn] { process->Exit(KilledBy(stubborn ? 9 : 15, "by order")); });
}

void DaemonProcess::KillHung(const RankId& id, const std::string& reason) {
  if (!process_.acting() || !ranks_.contains(id) || ranks_.at(id).kill_ordered) return;
  ranks_.at(id).hung = reason;
  Kill(id);
}

void DaemonProcess::OnProcessGone(const RankId& id) { PollEnd(id); }

void DaemonProcess::OnMessage(const RankId& id, const channel::Message& message) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end()) return;
  RankFolder& folder = machine_.folder(id);
  if (const auto* ready = std::get_if<channel::Ready>(&message)) {
    folder.ready = *ready;
    outbox_.Add(StatusOf(id));
  } else if (const auto* step = std::get_if<channel::Step>(&message)) {
    folder.steps.push_back(*step);
    found->second.last_step = outbox_.Add(StepReport{id, *step});
  } else if (const auto* saved = std::get_if<channel::Checkpoint>(&message)) {
    folder.checkpoints.push_back(*saved);
    found->second.last_checkpoint =
        outbox_.Add(CheckpointReport{id, *saved, world_.queue.clock().Now()});
  } else if (const auto* set = std::get_if<channel::Set>(&message)) {
    folder.sets.push_back(*set);
    outbox_.Add(RendezvousSet{{id.job_id, id.epoch, set->key, set->value}});
    Answer({id.job_id, id.epoch, set->key, set->value});
  }
  Flush();
}

void DaemonProcess::OnGet(const RankId& id, const std::string& key) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end()) return;
  found->second.gets.insert(key);
  outbox_.Add(RendezvousGet{{id.job_id, id.epoch, key}});
  for (const auto& [other, rank] : ranks_) {
    if (other.job_id != id.job_id || other.epoch != id.epoch) continue;
    for (const channel::Set& set : machine_.folder(other).sets) {
      if (set.key == key) return Answer({id.job_id, id.epoch, key, set.value});
    }
  }
  Flush();
}

void DaemonProcess::Answer(const RendezvousValue& answer) {
  for (auto& [id, rank] : ranks_) {
    if (id.job_id != answer.job_id || id.epoch != answer.epoch) continue;
    if (rank.gets.erase(answer.key) == 0) continue;
    if (const auto process = machine_.folder(id).process) process->OnValue(answer.key);
  }
}

// A file of a spool goes once all that is in it is acknowledged.
void DaemonProcess::Acknowledge(uint64_t sequence) {
  outbox_.Acknowledge(sequence);
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    RankFolder& folder = machine_.folder(it->first);
    const Rank& rank = it->second;
    if (rank.last_step <= sequence) folder.steps.clear();
    if (rank.last_checkpoint <= sequence) folder.checkpoints.clear();
    const bool done = rank.phase == Phase::kExited && rank.exit_sequence <= sequence;
    folder.reported |= done;
    it = done ? ranks_.erase(it) : std::next(it);
  }
}

}  // namespace trainyard::simulation
