// Removes one checkpoint so that no half of it can be taken for a whole.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

// `path` is a CheckpointPath or a BasePath; absent is OK. The manifest goes first, durably.
absl::Status RemoveCheckpoint(const std::string& path, Storage& storage);

}  // namespace trainyard
