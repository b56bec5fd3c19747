// Binds a rank to its processors.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace trainyard {

// Binds the calling thread and all threads that it starts later. INVALID_ARGUMENT: no processor can
// have this number. FAILED_PRECONDITION: none of the processors is usable.
absl::Status RunOnProcessors(const std::vector<int64_t>& processors);

}  // namespace trainyard
