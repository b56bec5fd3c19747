// Measures the time that a step spends in each phase, on the device's clock. Phases follow one
// another and are separated by events. The events are read after the step, so nobody waits for the
// device before.

#pragma once

#include <memory>
#include <vector>

#include "common/rank_records.h"
#include "models/program/executable.h"

namespace trainyard {

// While the clock lives, the executable's waits for communication count as phase grad_sync.
class PhaseClock final : public WaitObserver {
 public:
  using Phase = double PhaseSeconds::*;

  // `executable` must outlive the clock.
  explicit PhaseClock(Executable& executable);
  ~PhaseClock() override;
  PhaseClock(const PhaseClock&) = delete;

  // Starts a step with this phase.
  void Start(Phase phase);
  // From now until the next call, time counts to `phase`. Returns the phase before. Does nothing
  // outside a step.
  Phase Enter(Phase phase);
  // Ends the step: waits until the device has come to this point. The sum of the phases is the
  // device's time since Start.
  PhaseSeconds Stop();

  void BeginWait() override { waited_in_ = Enter(&PhaseSeconds::grad_sync); }
  void EndWait() override { Enter(waited_in_); }

 private:
  void Record();

  Executable& executable_;
  std::vector<std::unique_ptr<Event>> events_;  // As many as a step has had so far.
  std::vector<Phase> phases_;                   // Phase i begins at event i. Empty outside a step.
  Phase waited_in_ = nullptr;
};

}  // namespace trainyard
