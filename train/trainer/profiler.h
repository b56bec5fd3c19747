// Writes traces of the steps that a job's `profile` asks for.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/program/executable.h"
#include "train/config/job_config.h"
#include "train/config/trainer_config.h"

namespace trainyard {

// Returns the timeline as Chrome's trace events (JSON), which Perfetto reads, too. A process is a
// rank, and its threads are the tracks. `timeline` must have a span.
//
// Times are those of the wall clock, so traces of several machines can be compared as well as the
// machines' clocks agree. They count from the UTC midnight before the first span, which the file
// names: viewers store times in a double, whose precision is only 0.25 us for microseconds since
// 1970.
std::string ToChromeTrace(const Timeline& timeline, int64_t rank);

// Traces one rank. Also makes the profiler of the device's maker, if one watches the process
// (Nsight Systems), record the same steps, with names for actions, blocks and ops. If a trace
// cannot be written or that profiler does not start, a warning is logged and training continues.
class Profiler {
 public:
  // `directory` must exist. `executable` must outlive the profiler.
  Profiler(const ProfileConfig& profile, const RankConfig& rank, const std::string& directory,
           Executable& executable);
  ~Profiler();  // Writes the trace so far.

  // Call these around each step. The trace of the steps from the first one to be traced to the last
  // one goes to the file DIRECTORY/JOB-epoch-E-rank-R-step-N.json, where N is the first.
  void BeginStep(int64_t step);
  void EndStep(int64_t step);

 private:
  void Start();
  void Write();

  const int64_t first_, last_;  // The steps to trace.
  const int64_t rank_;
  const std::string path_;  // Without the step and the extension.
  Executable& executable_;
  Timeline timeline_;
  Span step_;                             // The current step.
  std::optional<Timeline::Range> range_;  // The range of the current step.
  bool started_ = false;                  // Backend::StartProfiler.
};

// Whether the job asks for traces of this rank.
bool Traces(const JobConfig& job, int64_t rank);

// Returns the beginning of the paths of all files that a rank writes to the profile's directory:
// DIRECTORY/JOB-epoch-E-rank-R-.
std::string TracePrefix(const std::string& directory, const RankConfig& rank);

}  // namespace trainyard
