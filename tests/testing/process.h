// Programs that a test runs: started with their output in files, waited for with a deadline, gone
// when the test is.

#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace trainyard::testing {

struct ProcessOptions {
  std::vector<std::string> argv;                   // argv[0] is a path.
  std::string directory;                           // To run in.
  std::map<std::string, std::string> environment;  // Added to this process's.
  std::string output;                              // Files; truncated.
  std::string errors;
};

// A running child. Killed (SIGTERM, then SIGKILL after a while) and reaped with the object; the
// kernel ends it if the test itself dies.
class Process {
 public:
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  bool Running();
  // The exit code, or 128 + signal; -1 if it still runs at the deadline.
  int Wait(absl::Duration patience);

 private:
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

struct Finished {
  int exit_code = -1;  // As Process::Wait.
  std::string output;
  std::string errors;
};
std::ostream& operator<<(std::ostream& out, const Finished& finished);

// Sends a signal to one process. CHECKs that `pid` is one: 0, -1 and 1 would mean everybody else,
// too.
void Kill(pid_t pid, int signal);

// Polls until `done` or the deadline; returns whether it was done.
bool WaitUntil(const std::function<bool()>& done, absl::Duration patience = absl::Seconds(60),
               absl::Duration pause = absl::Milliseconds(5));

// Processes whose command line holds `text`, zombies left out.
struct Found {
  pid_t pid = 0;
  std::string command;  // Arguments separated by spaces.
};
std::vector<Found> FindProcesses(const std::string& text);

}  // namespace trainyard::testing
