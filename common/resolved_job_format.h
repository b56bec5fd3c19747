// The version of a resolved job's text (train/config/resolved_job.h). The controller writes the
// text, a worker passes it on, and a trainer reads it.

#pragma once

#include <cstdint>

namespace trainyard {

// Increase this when a field is added or changes its meaning, and say in
// train/config/earlier_formats.cc what a job without the field meant.
inline constexpr int64_t kResolvedJobFormat = 5;
// The oldest format that is still read. Jobs are stored for as long as they run.
inline constexpr int64_t kOldestResolvedJobFormat = 2;

}  // namespace trainyard
