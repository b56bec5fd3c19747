// The steps of a job's current attempt that a report may still change, so that merging a report
// needs no look into the store.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/jobs/step_record.h"

namespace trainyard::controller {

// Not thread-safe. Bounded: an attempt of which a rank stays silent forgets its oldest steps.
class StepWindow {
 public:
  StepWindow() = default;
  // What the store holds of the attempt: its incomplete steps, and its newest one.
  explicit StepWindow(const std::vector<StepRecord>& stored);

  // The step as it is with this report merged in (MergeStep); nothing: it was told before. A rank
  // reports its steps in order, so what lies behind the newest one and is not open is complete.
  std::optional<StepRecord> Merge(const StepRecord& report, uint32_t rank, uint32_t world);

 private:
  uint64_t epoch_ = 0;
  uint64_t newest_ = 0;                  // That any rank has told.
  std::map<uint64_t, StepRecord> open_;  // Not told by all.
};

}  // namespace trainyard::controller
