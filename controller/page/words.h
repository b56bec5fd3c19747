// Numbers, times and states as the pages show them. A value that is unknown or not finite is a
// dash.

#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "controller/jobs/job.h"
#include "controller/page/html.h"
#include "controller/workers/worker_table.h"

namespace trainyard::controller {

inline constexpr char kUnknown[] = "\u2013";

std::string CountWords(double count);                   // 950, 12.3k, 1.24M
std::string NumberWords(std::optional<double> value);   // Four significant digits.
std::string BytesWords(uint64_t bytes);                 // 1.5 GiB
std::string DurationWords(absl::Duration duration);     // 42 s, 1 min 20 s, 3 h 05 min
std::string PercentWords(std::optional<double> ratio);  // 34.5 %
// The same. Above 100 %, says that the peak is too low; 0: the peak is not known.
std::string MfuWords(std::optional<double> mfu, double peak_flops);
std::string TimeWords(absl::Time time);  // 2026-11-24 21:30:05 UTC

// Returns "3 min ago", with the time itself as a tooltip.
Html AgeWords(absl::Time time, absl::Time now);

// Returns a small badge with the state. Its colour shows whether the state is good.
Html StateSign(JobState state);
Html StateSign(WorkerState state);
absl::string_view Name(RankPhase phase);
absl::string_view Name(ExitCause cause);

// Returns "57 / 200", and what the step is while no attempt trains.
std::string StepWords(const Job& job);

// Shows how many of its steps a job has finished.
Html ProgressBar(uint64_t step, uint64_t steps);

// "2 jobs", "1 job".
std::string Plural(uint64_t count, absl::string_view noun);

}  // namespace trainyard::controller
