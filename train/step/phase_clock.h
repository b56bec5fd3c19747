// What a step spends in each phase, on the device's clock: one phase follows another, from event to
// event, and these are read when the step is over, so that nobody waits for the device before.

#pragma once

#include <memory>
#include <vector>

#include "models/program/executable.h"
#include "train/step/trainer.h"

namespace trainyard {

// While it lives, what the executable waits for communication is phase grad_sync.
class PhaseClock final : public WaitObserver {
 public:
  using Phase = double PhaseSeconds::*;

  // `executable` must outlive the clock.
  explicit PhaseClock(Executable& executable);
  ~PhaseClock() override;
  PhaseClock(const PhaseClock&) = delete;

  // A step begins, with this phase.
  void Start(Phase phase);
  // What comes now, until the next call, is of this phase. Returns the one before; outside of a
  // step nothing happens.
  Phase Enter(Phase phase);
  // The step is over: waits until the device has come here. The sum of its phases is its time.
  PhaseSeconds Stop();

  void BeginWait() override { waited_in_ = Enter(&PhaseSeconds::grad_sync); }
  void EndWait() override { Enter(waited_in_); }

 private:
  void Record();

  Executable& executable_;
  std::vector<std::unique_ptr<Event>> events_;  // As many as a step has had.
  std::vector<Phase> phases_;                   // Each begins at its event; outside of a step none.
  Phase waited_in_ = nullptr;
};

}  // namespace trainyard
