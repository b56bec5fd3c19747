// Operations on whole files that survive a power cut: copy, sync and rename.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainyard::controller {

absl::Status SyncFile(const std::string& path);
// Makes or replaces `to`. Durable on return.
absl::Status CopyFile(const std::string& from, const std::string& to);
// Replaces `to` by `from`, atomically and durably. Both must be in one directory.
absl::Status ReplaceFile(const std::string& from, const std::string& to);

}  // namespace trainyard::controller
