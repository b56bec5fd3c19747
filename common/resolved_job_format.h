// The version of the text of a resolved job (train/config/resolved_job.h), which the controller
// writes, a worker passes on, and a trainer reads.

#pragma once

#include <cstdint>

namespace trainyard {

// Changes when a field is added or changes its meaning.
inline constexpr int64_t kResolvedJobFormat = 1;

}  // namespace trainyard
