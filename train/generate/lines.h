// The lines of files that are small enough to read at once.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the status with the place before its message.
absl::Status At(absl::string_view place, const absl::Status& status);

// Calls use(line, its number from 1 on) for each line that is not blank. Its errors are returned
// with "FILE:LINE: ". Others are those of ReadFile.
absl::Status ForEachLine(const std::string& path,
                         const std::function<absl::Status(absl::string_view, int64_t)>& use);

}  // namespace trainyard
