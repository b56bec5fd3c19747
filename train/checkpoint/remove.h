// Removes a checkpoint so that a partly removed one cannot be taken for a complete one.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

// `path` must be a CheckpointPath or a BasePath; OK if nothing is there. Removes the manifest
// first, durably.
absl::Status RemoveCheckpoint(const std::string& path, Storage& storage);

}  // namespace trainyard
