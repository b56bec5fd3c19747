// What goes wrong, drawn by the seed: which kinds, when, where and for how long.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/simulation/checks.h"
#include "tests/simulation/controller_process.h"
#include "tests/simulation/machine.h"

namespace trainyard::simulation {

class Faults {
 public:
  Faults(EventQueue& queue, ControllerProcess& controller, const Machines& machines, Checks& checks)
      : queue_(queue), controller_(controller), machines_(machines), checks_(checks) {}

  void Schedule();
  absl::Duration healed() const { return healed_; }  // From then on nothing fails.

 private:
  using Kind = void (Faults::*)();
  absl::Duration Away();  // Short, or longer than a lease.
  Machine& AnyMachine();
  // A rank that is alive, or null.
  std::shared_ptr<RankProcess> AnyRank();

  void CrashController();
  void DieAtWrite();
  void FreezeController();
  void FillDisk();
  void JumpClock();
  void CrashDaemon();
  void FreezeDaemon();
  void CutWay();
  void Reboot();
  void Vanish();
  void Unmount();
  void CrashRank();
  void FreezeRank();

  EventQueue& queue_;
  ControllerProcess& controller_;
  const Machines& machines_;
  Checks& checks_;
  absl::Duration healed_;
  bool vanished_ = false;
};

}  // namespace trainyard::simulation
