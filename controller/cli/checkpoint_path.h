// Which checkpoint a directory on the command line means.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::cli {

// The directory itself if it is a checkpoint, else the newest complete one below it. NOT_FOUND if
// there is none.
absl::StatusOr<std::string> ResolveCheckpoint(const std::string& directory);

}  // namespace trainyard::cli
