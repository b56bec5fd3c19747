// The version of a resolved job's text (train/config/resolved_job.h). The controller writes the
// text, a worker passes it on, and a trainer reads it.

#pragma once

#include <cstdint>

namespace trainyard {

// Increase this when a field is added or changes its meaning.
inline constexpr int64_t kResolvedJobFormat = 3;

}  // namespace trainyard
