#include "train/step/phase_clock.h"

namespace trainyard {

PhaseClock::PhaseClock(Executable& executable) : executable_(executable) {
  executable_.set_wait_observer(this);
}

PhaseClock::~PhaseClock() { executable_.set_wait_observer(nullptr); }

void PhaseClock::Start(Phase phase) {
  phases_.clear();
  Record();
  phases_.push_back(phase);
}

PhaseClock::Phase PhaseClock::Enter(Phase phase) {
  if (phases_.empty()) return nullptr;
  const Phase before = phases_.back();
  Record();
  phases_.push_back(phase);
  return before;
}

PhaseSeconds PhaseClock::Stop() {
  Record();
  PhaseSeconds seconds;
  for (size_t i = 0; i < phases_.size(); ++i) {
    seconds.*phases_[i] += events_[i + 1]->SecondsSince(*events_[i]);
  }
  phases_.clear();
  return seconds;
}

void PhaseClock::Record() {
  if (phases_.size() == events_.size()) events_.push_back(executable_.backend().NewEvent());
  executable_.Record(*events_[phases_.size()]);
}

}  // namespace trainyard
