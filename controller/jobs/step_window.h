// The steps of a job that a report may still change. They are kept here so that merging a report
// needs no query of the store. They are the steps that some ranks have not reported, and the steps
// that no rank has reported although later steps were reported (their host was lost, and may come
// back).

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/jobs/step_record.h"

namespace trainyard::controller {

// Not thread-safe. The size is limited: if a rank of the job stays silent, the oldest open steps
// are forgotten.
class StepWindow {
 public:
  StepWindow() = default;
  // `stored` is the result of Store::OpenSteps: the incomplete steps, the missing steps and the
  // newest step. `epoch` is that of the newest attempt that has reported where it began.
  StepWindow(const std::vector<JobStep>& stored, uint64_t epoch);

  // Notes that an attempt resumes from `step`. Reports of steps beyond `known_up_to` (at most
  // `step`) came from attempts whose steps were run again, so these steps are open again.
  void Resume(uint64_t epoch, uint64_t known_up_to, uint64_t step);

  // Notes that the job has no steps up to this one: they are those of a job that it continues.
  void SkipTo(uint64_t step);

  // Merges the report (MergeStep) and returns the step's record. Absent: the report is not new. If
  // a report of a later attempt comes before its Resume, all steps from this one on are open again.
  // The caller has checked that a report of an earlier attempt still counts.
  std::optional<JobStep> Merge(const JobStep& report, uint32_t rank, uint32_t world);
  // Does the same for a report that stands for all ranks.
  std::optional<JobStep> MergeWhole(const JobStep& report, uint32_t world);

  // All ranks have reported every step up to this one.
  uint64_t complete_up_to() const;

 private:
  JobStep* Open(uint64_t epoch, uint64_t step);  // Null: the step is not open.
  void Trim();                                   // Forgets the oldest open steps above the limit.

  uint64_t epoch_ = 0;
  uint64_t newest_ = 0;  // That any rank has reported.
  // Open steps. Empty ranks_seen: no rank has reported the step.
  std::map<uint64_t, JobStep> open_;
};

}  // namespace trainyard::controller
