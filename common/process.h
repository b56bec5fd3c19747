// Reads processes from /proc. A process id alone does not identify a process, because ids are used
// again. The process id and the start time together do.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_time = 0;  // Clock ticks since boot: field 22 of /proc/PID/stat.
};

struct ProcessStat {
  ProcessIdentity identity;
  pid_t parent = 0;
  bool dead = false;  // A zombie, or a process that is about to vanish.
};

// Absent: there is no such process.
std::optional<ProcessStat> ReadProcess(pid_t pid);
// False for a zombie. Errors: it cannot be found out now, for example because this process has no
// descriptor left.
absl::StatusOr<bool> IsRunning(const ProcessIdentity& identity);
std::vector<ProcessStat> AllProcesses();

}  // namespace trainyard
