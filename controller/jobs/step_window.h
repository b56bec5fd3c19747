// The steps of a job that a report may still change, so that merging a report needs no look into
// the store: those that not every rank has told, and those that nobody has told although later ones
// were (their host was lost, and may come back).

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/jobs/step_record.h"

namespace trainyard::controller {

// Not thread-safe. Bounded: a job of which a rank stays silent forgets its oldest open steps.
class StepWindow {
 public:
  StepWindow() = default;
  // Store::OpenSteps: the incomplete steps, those that are missing, and the newest one. `epoch`: of
  // the newest attempt that has said where it began.
  StepWindow(const std::vector<StepRecord>& stored, uint64_t epoch);

  // An attempt says that it goes on from `step`. What was told of steps beyond `known_up_to` (at
  // most `step`) was told by attempts whose steps were run again: those steps are open anew.
  void Resume(uint64_t epoch, uint64_t known_up_to, uint64_t step);

  // The step as it is with this report merged in (MergeStep); nothing: it was told before. Where a
  // report of a later attempt comes before its Resume, all steps from there on are told anew. The
  // caller has checked that a report of an earlier attempt still counts.
  std::optional<StepRecord> Merge(const StepRecord& report, uint32_t rank, uint32_t world);
  // Likewise for a report that stands for all ranks.
  std::optional<StepRecord> MergeWhole(const StepRecord& report, uint32_t world);

  // Every step up to this one has been told by all ranks.
  uint64_t complete_up_to() const;

 private:
  StepRecord* Open(uint64_t epoch, uint64_t step);  // Null: told before.
  void Trim();                                      // To the bound.

  uint64_t epoch_ = 0;
  uint64_t newest_ = 0;                  // That any rank has told.
  std::map<uint64_t, StepRecord> open_;  // Not told by all; without ranks_seen: by none.
};

}  // namespace trainyard::controller
