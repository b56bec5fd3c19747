// What keeps a rank from doing more than training. A job's spec names no program, but its data and
// its checkpoints come from strangers, and a fault in reading them must not cost the machine: a
// rank has another user than the daemon where the daemon is root, no capabilities, and no way to
// gain privileges; it writes below the roots of its job alone, reads neither the worker's keys nor
// other jobs' directories, and many system calls that training never makes are refused.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/sandbox/rank_user.h"

namespace trainyard {

// What holds for one rank. All paths are absolute and canonical; those that do not exist are
// skipped, but what is hidden stays so when it comes to exist. All can be read but what lies below
// `hidden`; of that, what lies below a path of `writable` or `readable` that is itself below. Where
// something hidden lies below a path of `writable`, nothing new can be made on the way there.
struct Sandbox {
  std::optional<RankUser> user = {};       // Absent: the daemon's.
  std::vector<std::string> writable = {};  // What is below may be read, written and made.
  std::vector<std::string> hidden = {};
  std::vector<std::string> readable = {};
  std::vector<std::string> made = {};  // Directories below `writable`, made where they are missing.
  bool landlock = true;                // The kernel has it: `writable` and `hidden` hold.
};

// Puts the calling process, which must have one thread, and all that it starts into the sandbox,
// for good. An error leaves it half inside: the caller must end.
absl::Status Enter(const Sandbox& sandbox);

// Refuses what training never needs, from debugging others to loading kernel modules, with EPERM.
absl::Status DenyDangerousCalls();

// No other program from here on. For a trainer, which starts none.
absl::Status DenyExec();

// Whether the calling process was put into a sandbox.
bool InSandbox();

}  // namespace trainyard
