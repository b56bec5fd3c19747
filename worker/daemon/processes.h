// Starts processes, and finds those that belong to a rank. common/process.h has the processes'
// identities.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process.h"

namespace trainyard {

// A command as posix_spawn takes it. Standard input is /dev/null; no other descriptor is inherited.
struct Command {
  std::vector<std::string> arguments;    // The program's path first.
  std::vector<std::string> environment;  // NAME=value, all of it.
  std::string output = {};               // File that standard output and error are appended to.
};

// Starts the command in a session of its own, with SIGTERM blocked: a SIGTERM that comes before the
// program is ready waits. The caller must reap the process.
absl::StatusOr<pid_t> SpawnSession(const Command& command);

// Runs the command to its end, and returns its standard output; `output` is not used.
// FAILED_PRECONDITION: the command exits with another code than 0. DEADLINE_EXCEEDED: the command
// was killed after `timeout`.
absl::StatusOr<std::string> RunForOutput(const Command& command, absl::Duration timeout);

// Returns whether the process is `ancestor` or descends from it, by parents that are alive.
bool DescendsFrom(pid_t pid, const ProcessIdentity& ancestor);

// Sends SIGKILL to every process with `marker` (NAME=value) in its environment, except the caller.
// Returns how many of them were alive. Does not go by the numbers of processes or sessions: after
// the end of one, a stranger may have its number.
int KillMarked(const std::string& marker);

// Returns the oldest process that has `marker` in its environment and leads a session, as what
// SpawnSession has started does. NOT_FOUND: there is none. Other errors: processes cannot be read
// now.
absl::StatusOr<ProcessIdentity> FindMarkedSession(const std::string& marker);

}  // namespace trainyard
