#include "tests/simulation/faults.h"

#include <algorithm>

namespace trainyard::simulation {
namespace {

// Below it, silence is nothing: a lease is 6 seconds, and a beat of 2 may just have been due.
constexpr absl::Duration kHarmless = absl::Seconds(3);
// A tenth of the daemon's patience: without any sign of life a rank is ended.
constexpr absl::Duration kHung = absl::Seconds(10);

}  // namespace

void Faults::Schedule() {
  constexpr Kind kKinds[] = {
      &Faults::CrashController, &Faults::DieAtWrite,  &Faults::FreezeController, &Faults::FillDisk,
      &Faults::JumpClock,       &Faults::CrashDaemon, &Faults::FreezeDaemon,     &Faults::CutWay,
      &Faults::Reboot,          &Faults::Vanish,      &Faults::Unmount,          &Faults::CrashRank,
      &Faults::FreezeRank};
  // Few kinds at once meet each other more often than all of them.
  std::vector<Kind> kinds;
  for (const Kind kind : kKinds) {
    if (queue_.Chance(0.3)) kinds.push_back(kind);
  }
  if (kinds.empty()) kinds.push_back(kKinds[queue_.Below(std::size(kKinds))]);
  const uint64_t count = 2 + queue_.Below(8);
  for (uint64_t i = 0; i < count; ++i) {
    const absl::Duration when = queue_.Between(absl::Seconds(2), absl::Seconds(40));
    const Kind kind = kinds[queue_.Below(kinds.size())];
    queue_.After(when, [this, kind] { (this->*kind)(); });
    healed_ = std::max(healed_, when);
  }
}

absl::Duration Faults::Away() {
  absl::Duration away = queue_.Between(absl::Milliseconds(50), absl::Seconds(5));
  if (queue_.Chance(0.5)) away = queue_.Between(absl::Seconds(5), absl::Seconds(15));
  if (queue_.Chance(0.15)) away = queue_.Between(absl::Seconds(15), absl::Seconds(90));
  healed_ = std::max(healed_, queue_.now() + away);
  return away;
}

Machine& Faults::AnyMachine() { return *machines_[queue_.Below(machines_.size())]; }

std::shared_ptr<RankProcess> Faults::AnyRank() {
  std::vector<std::shared_ptr<RankProcess>> alive;
  for (const auto& machine : machines_) {
    for (const auto& [id, folder] : machine->folders()) {
      if (folder.process != nullptr && folder.process->process().alive()) {
        alive.push_back(folder.process);
      }
    }
  }
  return alive.empty() ? nullptr : alive[queue_.Below(alive.size())];
}

void Faults::CrashController() {
  using Death = ControllerProcess::Death;
  controller_.Crash(queue_.Chance(0.5) ? Death::kKilled : Death::kPowerCut, Away());
}

void Faults::DieAtWrite() {
  using Death = ControllerProcess::Death;
  const Death death = queue_.Chance(0.5) ? Death::kKilled : Death::kPowerCut;
  controller_.DieAtWrite(death, 1 + int(queue_.Below(40)), Away());
}

void Faults::FreezeController() {
  if (!controller_.up()) return;
  Process* const process = controller_.process();
  const absl::Duration away = Away();
  queue_.Trace("the controller stands still for ", absl::FormatDuration(away));
  process->Freeze();
  queue_.After(away, [this, process, away] {
    checks_.ControllerStoodStill(away);
    if (controller_.process() == process) process->Thaw();
  });
}

void Faults::FillDisk() {
  queue_.Trace("the controller's disk is full");
  controller_.FillDisk();
  queue_.After(Away(), [this] {
    queue_.Trace("the controller's disk has room");
    controller_.FreeDisk();
  });
}

void Faults::JumpClock() {
  constexpr absl::Duration kJumps[] = {absl::Hours(1), -absl::Hours(1), absl::Hours(24),
                                       -absl::Hours(24)};
  const absl::Duration jump = kJumps[queue_.Below(std::size(kJumps))];
  queue_.Trace("the wall clock jumps by ", absl::FormatDuration(jump));
  queue_.clock().JumpWall(jump);
}

// Its stream is closed, and it is back within its time: no rank of it may notice. Unless the
// controller, which has started meanwhile, does not know of the stream.
void Faults::CrashDaemon() {
  Machine& machine = AnyMachine();
  const absl::Duration away = Away();
  if (machine.daemon() != nullptr && !machine.daemon()->registered()) {
    checks_.ExcuseMachine(machine.id(), away);
  }
  machine.CrashDaemon(away);
}

void Faults::FreezeDaemon() {
  Machine& machine = AnyMachine();
  const absl::Duration away = Away();
  if (away > kHarmless) checks_.ExcuseMachine(machine.id(), away);
  machine.FreezeDaemon(away);
}

void Faults::CutWay() {
  Machine& machine = AnyMachine();
  const absl::Duration away = Away();
  if (away > kHarmless) checks_.ExcuseMachine(machine.id(), away);
  machine.CutWay(away, queue_.Chance(0.5));
}

void Faults::Reboot() {
  Machine& machine = AnyMachine();
  const absl::Duration away = Away();
  checks_.ExcuseMachine(machine.id(), away);
  machine.Reboot(away);
}

void Faults::Vanish() {
  if (vanished_) return;  // The others must be able to hold every job.
  vanished_ = true;
  Machine& machine = AnyMachine();
  checks_.ExcuseMachine(machine.id(), absl::InfiniteDuration());
  machine.Vanish();
}

void Faults::Unmount() {
  Machine& machine = AnyMachine();
  const absl::Duration away = Away();
  checks_.ExcuseMachine(machine.id(), away);
  queue_.Trace(machine.id(), ": the share is not mounted for ", absl::FormatDuration(away));
  machine.mounted = false;
  queue_.After(away, [&machine] { machine.mounted = true; });
}

void Faults::CrashRank() {
  const std::shared_ptr<RankProcess> rank = AnyRank();
  if (rank == nullptr) return;
  checks_.Excuse(rank->id().job_id, rank->id().epoch);
  rank->Exit({.cause = ExitCause::kSignal, .signal = 9, .message = "a fault"});
}

void Faults::FreezeRank() {
  const std::shared_ptr<RankProcess> rank = AnyRank();
  if (rank == nullptr || rank->process().frozen()) return;
  const absl::Duration away = Away();
  queue_.Trace("rank ", rank->id().Name(), " stands still for ", absl::FormatDuration(away));
  rank->process().Freeze();
  queue_.After(away, [rank] { rank->process().Thaw(); });
  if (away < kHung) return;
  checks_.Excuse(rank->id().job_id, rank->id().epoch);
  queue_.After(kHung, [rank] {
    DaemonProcess* daemon = rank->machine().daemon();
    if (daemon != nullptr && rank->process().frozen()) daemon->KillHung(rank->id(), "stands still");
  });
}

}  // namespace trainyard::simulation
