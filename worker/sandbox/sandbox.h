// Keeps a rank from doing more than training. A job's spec names no program. But its data and its
// checkpoints come from strangers, and a fault in reading them must not cost the machine. So:
//
// * A rank has no capabilities and cannot gain privileges. If the daemon is root, the rank runs as
//   another user.
// * A rank writes only below the roots of its job. A rank reads neither the worker's keys nor the
//   directories of other jobs.
// * Many system calls that training never makes are refused.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/sandbox/rank_user.h"

namespace trainyard {

// The sandbox of one rank. All paths are absolute and canonical. Paths that do not exist are
// skipped; a hidden path stays hidden if somebody makes it later.
//
// The rank can read every file that is not below a path of `hidden`. A path of `writable` or
// `readable` below a hidden path can be used nevertheless. If a hidden path lies below a path of
// `writable`, the rank cannot make new files in the directories that lead to the hidden path.
struct Sandbox {
  std::optional<RankUser> user = {};       // Absent: the daemon's.
  std::vector<std::string> writable = {};  // Files below may be read, written and made.
  std::vector<std::string> hidden = {};
  std::vector<std::string> readable = {};
  std::vector<std::string> made = {};  // Directories below `writable`, made if they are missing.
  bool landlock = true;                // The kernel has Landlock. Without it, all files are open.
};

// Puts the calling process and all processes that it starts later into the sandbox, for good. The
// process must have one thread. After an error the process is partly in the sandbox, and must end.
absl::Status Enter(const Sandbox& sandbox);

// From here on, system calls that training never needs fail with EPERM: among them those that debug
// other processes and those that load kernel modules.
absl::Status DenyDangerousCalls();

// From here on, the process cannot start a program. For a trainer, which starts none.
absl::Status DenyExec();

// Whether the calling process was put into a sandbox.
bool InSandbox();

}  // namespace trainyard
