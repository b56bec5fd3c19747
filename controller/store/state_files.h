// What the store does with whole files: copies, syncs and renames that survive a power cut.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainyard::controller {

absl::Status SyncFile(const std::string& path);
// Makes or replaces `to`; durable once it returns.
absl::Status CopyFile(const std::string& from, const std::string& to);
// Atomic and durable: `to` is the old file or the whole new one. Both in one directory.
absl::Status ReplaceFile(const std::string& from, const std::string& to);

}  // namespace trainyard::controller
