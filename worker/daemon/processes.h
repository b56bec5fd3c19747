// Starting processes, and finding those that belong to a rank. common/process.h says what a process
// is.

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

// Starts it in a session of its own, with SIGTERM blocked: one that comes before the program is
// ready for it waits. The caller reaps it.
absl::StatusOr<pid_t> SpawnSession(const Command& command);

// Runs it to its end and returns its standard output; `output` is not used. FAILED_PRECONDITION if
// it exits with another code than 0, DEADLINE_EXCEEDED (it is killed) after `timeout`.
absl::StatusOr<std::string> RunForOutput(const Command& command, absl::Duration timeout);

// Whether the process is `ancestor`, or comes from it by way of parents that live.
bool DescendsFrom(pid_t pid, const ProcessIdentity& ancestor);

// SIGKILL to every process with `marker` (NAME=value) in its environment, except the caller.
// Returns how many still lived. Goes by nothing else: the number of a process or session that is
// gone may by now be a stranger's.
int KillMarked(const std::string& marker);

}  // namespace trainyard
