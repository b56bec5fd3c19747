// Processes as /proc shows them: which one is meant, and whether it still runs. A process id alone
// is not an identity, because it is used again; with the start time it is.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace trainyard {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_time = 0;  // Clock ticks since boot: field 22 of /proc/PID/stat.
};

struct ProcessStat {
  ProcessIdentity identity;
  pid_t parent = 0;
  bool dead = false;  // A zombie, or about to vanish.
};

// Absent: no such process.
std::optional<ProcessStat> ReadProcess(pid_t pid);
bool IsRunning(const ProcessIdentity& identity);  // False for a zombie.
std::vector<ProcessStat> AllProcesses();

}  // namespace trainyard
