// How much of a sandbox the ranks of a worker get.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/sandbox/rank_user.h"

namespace trainyard {

// What is the same for all ranks of a worker.
struct SandboxOptions {
  std::optional<RankUser> user = {};  // Absent: the daemon's.
  bool landlock = true;
  // Files and directories with secrets, absolute. They need not exist yet.
  std::vector<std::string> hidden = {};
};

struct SandboxRequest {
  std::string mode;                      // "off", "auto" or "require".
  std::string user;                      // Empty: the owner of the first root.
  std::vector<std::string> roots;        // Directories that jobs may use, canonical.
  std::string state_directory;           // Canonical.
  std::vector<std::string> hidden = {};  // Others with secrets; may be missing, or empty.
};

// What a path that may not exist is called without links.
std::string WithoutLinks(const std::string& path);

// Absent: ranks may do what the daemon may. INVALID_ARGUMENT: no such mode or user.
// FAILED_PRECONDITION: with "require", and this machine or the daemon's user lacks something; a
// root is what must be hidden. PERMISSION_DENIED: the ranks' user cannot get to its files below the
// state directory.
absl::StatusOr<std::optional<SandboxOptions>> ChooseSandbox(const SandboxRequest& request);

}  // namespace trainyard
