// Reads an open file. For the files of this folder; others use files.h or canonical.h.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// Reads from `fd` to the end. `path` is for errors. FAILED_PRECONDITION: there is more than
// `limit_bytes`.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, uint64_t limit_bytes);

}  // namespace trainyard
