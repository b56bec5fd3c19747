// One optimizer step of a job, merged from the reports of its ranks.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rank_records.h"
#include "common/step_numbers.h"

namespace trainyard::controller {

struct Progress;

// Readings from the GPUs of a step's ranks. A value that no rank reports is absent.
struct GpuReading {
  std::optional<double> utilization;          // The lowest, 0 to 1.
  std::optional<double> power_watts;          // The sum.
  std::optional<double> sm_clock_hertz;       // The lowest.
  std::optional<double> temperature_celsius;  // The highest.
  std::set<std::string> throttle_reasons;     // Those of all GPUs.
};

struct StepRecord : StepNumbers {
  uint64_t step = 0;  // The first step is 1.
  uint64_t epoch = 0;
  uint64_t tokens = 0;  // Of the global batch.
  double seconds = 0;   // Seconds and phases of the slowest rank so far.
  PhaseSeconds phases;
  absl::Time finish_time;
  bool skipped = false;
  double model_flops = 0;                     // Of the whole job.
  GpuReading gpu;                             // Of the ranks that have reported.
  std::vector<GeneratedText> generated = {};  // By prompt.

  // Which ranks have reported, one bit each. A repeated report therefore changes nothing.
  std::string ranks_seen;
  bool complete = false;  // All ranks have reported.
};

// Merges one rank's report into the record. The seconds and phases are those of the slowest rank.
// Values that are the same on every rank come from rank 0 once it has reported. The first report of
// a later epoch replaces the record; a report of an earlier epoch is ignored. The second try of a
// skipped step replaces the record of the first. Returns whether anything changed.
bool MergeStep(StepRecord& record, const StepRecord& report, uint32_t rank, uint32_t world);

// Sets the progress's step to this one, with the numbers that progress has of its step.
void NoteStep(const StepRecord& record, Progress& progress);

}  // namespace trainyard::controller
