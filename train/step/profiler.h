// Traces of the steps that a job's `profile` asks for.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/program/executable.h"
#include "train/config/job_config.h"
#include "train/config/trainer_config.h"

namespace trainyard {

// As Chrome's trace events, JSON that Perfetto reads, too: a process is a rank, its threads are the
// tracks. Times are of the wall clock, so that ranks of several machines lie side by side as well
// as their clocks agree, but since the UTC midnight before the first span, which the file names:
// viewers hold them in a double, which has 0.25 us for the microseconds since 1970. `timeline` has
// a span.
std::string ToChromeTrace(const Timeline& timeline, int64_t rank);

// Of one rank. A profiler of the device's maker that watches the process (Nsight Systems) is told
// to record the same steps, in which it finds actions, blocks and ops by name. Training goes on
// where a trace cannot be written or that profiler does not start: that is a warning in the log.
class Profiler {
 public:
  // `directory` exists. `executable` outlives it.
  Profiler(const ProfileConfig& profile, const RankConfig& rank, const std::string& directory,
           Executable& executable);
  ~Profiler();  // Writes what was traced.

  // Around each step. The first that is to be traced begins a file
  // DIRECTORY/JOB-epoch-E-rank-R-step-N.json, and the last ends it.
  void BeginStep(int64_t step);
  void EndStep(int64_t step);

 private:
  void Start();
  void Write();

  const int64_t first_, last_;  // Steps to be traced.
  const int64_t rank_;
  const std::string path_;  // Less the step.
  Executable& executable_;
  Timeline timeline_;
  Span step_;                             // That was begun.
  std::optional<Timeline::Range> range_;  // Of it.
  bool started_ = false;                  // Backend::StartProfiler.
};

// Whether the job wants traces of a rank.
bool Traces(const JobConfig& job, int64_t rank);

// How the paths begin of what a rank leaves in the profile's directory:
// DIRECTORY/JOB-epoch-E-rank-R-.
std::string TracePrefix(const std::string& directory, const RankConfig& rank);

}  // namespace trainyard
