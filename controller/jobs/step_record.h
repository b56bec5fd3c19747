// One optimizer step of a job, merged from what its ranks say of it.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "common/step_numbers.h"

namespace trainyard::controller {

// What one rank spent in one operation of one group.
struct CollectiveUse {
  std::string op;
  std::string group;
  double bytes = 0;  // Sent by the rank.
  double seconds = 0;
};

// The GPUs of a step's ranks; absent what none of them tells.
struct GpuReading {
  std::optional<double> utilization;          // 0 to 1; the lowest.
  std::optional<double> power_watts;          // Of all together.
  std::optional<double> sm_clock_hertz;       // The lowest.
  std::optional<double> temperature_celsius;  // The highest.
  std::set<std::string> throttle_reasons;     // Of any.
};

struct StepRecord : StepNumbers {
  uint64_t step = 0;  // From 1.
  uint64_t epoch = 0;
  uint64_t tokens = 0;  // Of the global batch.
  double seconds = 0;   // Of the slowest rank so far, and so are the phases.
  PhaseSeconds phases;
  absl::Time finish_time;
  bool skipped = false;
  double model_flops = 0;  // Of the whole job's step.
  GpuReading gpu;          // Of the ranks that have reported.

  // Which ranks have reported, one bit each: a report told twice changes nothing.
  std::string ranks_seen;
  bool complete = false;  // All have.
};

// What one rank says. The slowest rank's seconds and phases win; what is the same on every rank is
// taken from rank 0 once it has spoken. A later epoch's first report replaces the record; an
// earlier epoch's is refused. The second try of a skipped step replaces the skipped record. True if
// anything changed.
bool MergeStep(StepRecord& record, const StepRecord& report, uint32_t rank, uint32_t world);

}  // namespace trainyard::controller
