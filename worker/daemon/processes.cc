#include "worker/daemon/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The attributes and file actions of posix_spawn, which are released together.
class SpawnPlan {
 public:
  explicit SpawnPlan(std::initializer_list<int> blocked_signals) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t blocked, all;
    sigemptyset(&blocked);
    for (const int signal : blocked_signals) sigaddset(&blocked, signal);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t* actions() { return &actions_; }

  absl::StatusOr<pid_t> Spawn(const Command& command) {
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    pid_t pid = 0;
    const int error =
        posix_spawn(&pid, command.arguments[0].c_str(), &actions_, &attributes_,
                    Pointers(command.arguments).data(), Pointers(command.environment).data());
    if (error != 0) return ErrnoStatus(error, "start", command.arguments[0]);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

constexpr size_t kMostEnvironment = 4 << 20;

bool HasMarker(pid_t pid, const std::string& marker) {
  const auto environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"), kMostEnvironment);
  if (!environment.ok()) return false;
  for (absl::string_view entry : absl::StrSplit(*environment, '\0')) {
    if (entry == marker) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<pid_t> SpawnSession(const Command& command) {
  SpawnPlan plan({SIGTERM});
  posix_spawn_file_actions_addopen(plan.actions(), STDOUT_FILENO, command.output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(plan.actions(), STDOUT_FILENO, STDERR_FILENO);
  return plan.Spawn(command);
}

absl::StatusOr<std::string> RunForOutput(const Command& command, absl::Duration timeout) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "open a pipe for", "a program");
  FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  SpawnPlan plan({});
  posix_spawn_file_actions_adddup2(plan.actions(), to.get(), STDOUT_FILENO);
  ASSIGN_OR_RETURN(const pid_t pid, plan.Spawn(command));
  to = FileDescriptor();
  std::string output;
  bool timed_out = false;
  const absl::Duration deadline = RealClock().Monotonic() + timeout;
  char chunk[4096];
  for (;;) {
    pollfd ready = {from.get(), POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - RealClock().Monotonic());
    timed_out = left <= 0 || ::poll(&ready, 1, int(left)) == 0;
    if (timed_out) break;
    const ssize_t n = ::read(from.get(), chunk, sizeof(chunk));
    if (n == 0 || (n < 0 && errno != EINTR)) break;
    if (n > 0 && output.size() < (1 << 20)) output.append(chunk, size_t(n));
  }
  from = FileDescriptor();  // Who still writes must not wait for this process.
  if (timed_out) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (timed_out) {
    return absl::DeadlineExceededError(
        absl::StrCat(command.arguments[0], " did not end within ", absl::FormatDuration(timeout)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::FailedPreconditionError(
        WIFEXITED(status)
            ? absl::StrCat(command.arguments[0], " exited with code ", WEXITSTATUS(status))
            : absl::StrCat(command.arguments[0], " was ended by signal ", WTERMSIG(status)));
  }
  return output;
}

bool DescendsFrom(pid_t pid, const ProcessIdentity& ancestor) {
  while (pid > 1) {
    const std::optional<ProcessStat> process = ReadProcess(pid);
    if (!process || process->identity.start_time < ancestor.start_time) return false;
    if (pid == ancestor.pid) return process->identity.start_time == ancestor.start_time;
    pid = process->parent;
  }
  return false;
}

int KillMarked(const std::string& marker) {
  // An empty marker would match every process.
  CHECK(marker.find('=') != std::string::npos && marker.back() != '=') << marker;
  int lived = 0;
  for (const ProcessStat& process : AllProcesses()) {
    const pid_t pid = process.identity.pid;
    if (process.dead || pid == ::getpid()) continue;
    if (HasMarker(pid, marker)) {
      ::kill(pid, SIGKILL);
      ++lived;
    }
  }
  return lived;
}

absl::StatusOr<ProcessIdentity> FindMarkedSession(const std::string& marker) {
  RETURN_IF_ERROR(ReadFile("/proc/self/environ", kMostEnvironment).status());
  std::optional<ProcessIdentity> oldest;
  for (const ProcessStat& process : AllProcesses()) {
    const auto [pid, start_time] = process.identity;
    if (process.dead || ::getsid(pid) != pid || !HasMarker(pid, marker)) continue;
    if (!oldest || start_time < oldest->start_time) oldest = process.identity;
  }
  if (oldest) return *oldest;
  return absl::NotFoundError(absl::StrCat("no process leads a session with ", marker));
}

}  // namespace trainyard
