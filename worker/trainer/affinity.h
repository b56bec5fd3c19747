// Which processors a rank runs on.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace trainyard {

// Binds the calling thread, and those that it starts from now on. Errors: INVALID_ARGUMENT for a
// number that no processor can have, FAILED_PRECONDITION when none of them is usable.
absl::Status RunOnProcessors(const std::vector<int64_t>& processors);

}  // namespace trainyard
