// A child process that does not outlive this one: PR_SET_PDEATHSIG, own process group, standard
// error appended to a log.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::cli {

struct SpawnedChild {
  pid_t pid = -1;
  int output = -1;  // Read end of the child's standard output, non-blocking; the caller closes it.
};

// Must be called on the main thread: the kernel ends the child (SIGTERM) with the thread that made
// it. `log` is appended to. Errors: NOT_FOUND for a missing program.
absl::StatusOr<SpawnedChild> SpawnChild(const std::vector<std::string>& argv,
                                        const std::string& log);

// "exited with 1", "was killed by signal 9".
std::string DescribeExit(int wait_status);

// The last `lines` lines of a file; empty if it cannot be read.
std::string Tail(const std::string& path, int lines);

// Keeps a log bounded: beyond `limit_bytes` its contents move to PATH.1, replacing that. Writers
// that append go on.
void RotateLog(const std::string& path, uint64_t limit_bytes);

// Processes whose parent is this one, by /proc: children, and orphans where this process is a
// subreaper.
std::vector<pid_t> ChildrenOfThisProcess();

}  // namespace trainyard::cli
