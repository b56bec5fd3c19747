// The numbers that a trainer measures in an optimizer step, by name, and its seconds by phase. The
// lines of a rank's socket, the API's messages, the controller's metrics and the exports of a job
// all visit these. proto/trainyard/v1/step.proto declares the numbers, and the build makes their
// struct (proto/declared_rows.h).

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace trainyard {

// Seconds by phase. `data`, `checkpoint` and `validation` are not part of the step's seconds. The
// other phases and the host's time between steps add up to the step's seconds (docs/metrics.md).
struct PhaseSeconds {
  double data = 0;  // Waiting for the batch, before the step.
  double forward = 0;
  double backward = 0;
  double grad_sync = 0;  // Communication that was not hidden: waiting for it or for a slower rank.
  double optimizer = 0;
  double pipeline_bubble = 0;  // Waiting for other stages.
  double checkpoint = 0;       // Stall after the step.
  double validation = 0;       // After the step, if it was measured.

  double of_step() const {  // The phases that are part of the step.
    return forward + backward + grad_sync + optimizer + pipeline_bubble;
  }
  // The host's time between steps, in a step of so many seconds.
  double host(double seconds) const { return std::max(0.0, seconds - of_step()); }
  // A step of so many seconds, together with the phases that are not part of it. The time left is
  // computed from these sums.
  double with_pauses(double seconds) const { return seconds + data + checkpoint + validation; }
};

struct PhaseName {
  const char* name;
  double PhaseSeconds::*seconds;
};
inline constexpr std::array<PhaseName, 8> kPhases = {{
    {"data", &PhaseSeconds::data},
    {"forward", &PhaseSeconds::forward},
    {"backward", &PhaseSeconds::backward},
    {"grad_sync", &PhaseSeconds::grad_sync},
    {"optimizer", &PhaseSeconds::optimizer},
    {"pipeline_bubble", &PhaseSeconds::pipeline_bubble},
    {"checkpoint", &PhaseSeconds::checkpoint},
    {"validation", &PhaseSeconds::validation},
}};

inline PhaseSeconds& operator+=(PhaseSeconds& sum, const PhaseSeconds& more) {
  for (const PhaseName& phase : kPhases) sum.*phase.seconds += more.*phase.seconds;
  return sum;
}

template <typename V>
void VisitFields(V& v, PhaseSeconds& phases) {
  for (const auto& [name, seconds] : kPhases) {
    // Ranks and histories of the last release do not have this phase.
    if (seconds == &PhaseSeconds::validation) {
      v.Later(name, phases.*seconds);
    } else {
      v(name, phases.*seconds);
    }
  }
}

// How a number is shown.
struct StepNumber {
  const char* name;    // Of the member, and of the field of v1::StepRecord.
  const char* metric;  // The controller's gauge is trainyard_<metric>.
  const char* help;    // The gauge's help: what a bad value means.
};

// StepNumbers, with a member for each field of v1::StepRecord that has the option `number`, and
// ForEachNumber(numbers, visit), which calls visit(const StepNumber&, member) for each member of a
// StepNumbers, const or not. proto/trainyard/v1/step.proto says what each number is.
#include "common/declared_numbers.inc"

template <typename V>
void VisitFields(V& v, StepNumbers& numbers) {
  ForEachNumber(numbers, [&](const StepNumber& row, auto& number) { v(row.name, number); });
}

}  // namespace trainyard
