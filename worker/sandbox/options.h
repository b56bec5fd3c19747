// Chooses the sandbox of a worker's ranks: by the command line, and by what the machine can do.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/sandbox/rank_user.h"

namespace trainyard {

// The part of a sandbox that is the same for all ranks of a worker.
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
  std::vector<std::string> hidden = {};  // Other paths with secrets; each may be missing or empty.
};

// Returns the path without links. The path need not exist.
std::string WithoutLinks(const std::string& path);

// Absent: ranks may do what the daemon may. INVALID_ARGUMENT: there is no such mode or user.
// FAILED_PRECONDITION: a root is a directory that must be hidden; or the mode is "require", and
// this machine or the daemon's user lacks something. PERMISSION_DENIED: the ranks' user cannot get
// to the ranks' files below the state directory.
absl::StatusOr<std::optional<SandboxOptions>> ChooseSandbox(const SandboxRequest& request);

}  // namespace trainyard
