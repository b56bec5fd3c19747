// One optimizer step of a job, merged from the reports of its ranks.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/rank_records.h"

namespace trainyard::controller {

struct Progress;

struct JobStep : trainyard::StepRecord {
  // The base has the seconds and phases of the slowest rank so far, the readings of the GPUs of all
  // ranks that have reported, with the reasons in order, and the attempt as `epoch`. It lacks
  // `time` and, once reports are merged, `collectives`.
  absl::Time finish_time;

  // Which ranks have reported, one bit each. A repeated report therefore changes nothing.
  std::string ranks_seen;
  bool complete = false;  // All ranks have reported.
};

// Merges one rank's report into the record. The seconds and phases are those of the slowest rank.
// Values that are the same on every rank come from rank 0 once it has reported. The first report of
// a later epoch replaces the record; a report of an earlier epoch is ignored. The second try of a
// skipped step replaces the record of the first. Returns whether anything changed.
bool MergeStep(JobStep& record, const JobStep& report, uint32_t rank, uint32_t world);

// Sets the progress's step to this one, with the numbers that progress has of its step.
void NoteStep(const JobStep& record, Progress& progress);

}  // namespace trainyard::controller
