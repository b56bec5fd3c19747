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
  std::vector<std::string> hidden = {};  // Directories with secrets.
};

struct SandboxRequest {
  std::string mode;              // "off", "auto" or "require".
  std::string user;              // Empty: the owner of `root`.
  std::string root;              // The first directory that jobs may use.
  std::string state_directory;   // Canonical.
  std::string config_directory;  // Of the daemon's user; may be missing.
};

// Absent: ranks may do what the daemon may. INVALID_ARGUMENT: no such mode or user.
// FAILED_PRECONDITION: with "require", and this machine or the daemon's user lacks something.
// PERMISSION_DENIED: the ranks' user cannot get to its files below the state directory.
absl::StatusOr<std::optional<SandboxOptions>> ChooseSandbox(const SandboxRequest& request);

}  // namespace trainyard
