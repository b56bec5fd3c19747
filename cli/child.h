// A child process that ends with this process: PR_SET_PDEATHSIG, an own process group, standard
// error appended to a log.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace trainyard::cli {

struct SpawnedChild {
  pid_t pid = -1;
  FileDescriptor output;  // Read end of the child's standard output, non-blocking.
};

// Starts the program, and appends its standard error to `log`. Must be called on the main thread,
// because the kernel ends the child (SIGTERM) with the thread that made it. NOT_FOUND: there is no
// such program.
absl::StatusOr<SpawnedChild> SpawnChild(const std::vector<std::string>& argv,
                                        const std::string& log);

// "exited with 1", "was killed by signal 9".
std::string DescribeExit(int wait_status);

// The last `lines` lines of a file; empty if it cannot be read.
std::string Tail(const std::string& path, int lines);

// Limits the size of a log: above `limit_bytes` its contents replace PATH.1. Writers that append
// are not disturbed.
void RotateLog(const std::string& path, uint64_t limit_bytes);

// Returns the processes whose parent is this one, by /proc: its children and, if it is a subreaper,
// orphans.
std::vector<pid_t> ChildrenOfThisProcess();

}  // namespace trainyard::cli
