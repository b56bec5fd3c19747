#include "worker/trainer/follower_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/status_macros.h"

extern char** environ;

namespace trainyard {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(1);  // There is no event to wait for.
constexpr absl::Duration kBetweenLooksOfWatch = absl::Milliseconds(20);

class OfDirectory final : public Rendezvous {
 public:
  OfDirectory(std::string directory, std::function<absl::Status()> check)
      : directory_(std::move(directory)), check_(std::move(check)) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    return WriteFileAtomic(PathOf(key), value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    const auto deadline = RealClock().Monotonic() + timeout;
    while (RealClock().Monotonic() < deadline) {
      if (Exists(PathOf(key))) return ReadFile(PathOf(key));
      if (check_) RETURN_IF_ERROR(check_());
      absl::SleepFor(kBetweenLooks);
    }
    return absl::DeadlineExceededError(absl::StrCat("nobody has set ", key));
  }

 private:
  std::string PathOf(const std::string& key) const {
    return absl::StrCat(directory_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
  }
  const std::string directory_;
  const std::function<absl::Status()> check_;
};

std::string HowEnded(int rank, int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("rank ", rank, " was killed by signal ", WTERMSIG(wait_status));
  }
  return absl::StrCat("rank ", rank, " exited with ", WEXITSTATUS(wait_status));
}

// This process's environment with some variables replaced.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name = std::string(*variable).substr(0, std::string(*variable).find('='));
    bool replaced = false;
    for (const std::string& other : variables) {
      replaced |= absl::StartsWith(other, absl::StrCat(name, "="));
    }
    if (!replaced) all.push_back(*variable);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::unique_ptr<Rendezvous> DirectoryRendezvous(const std::string& directory,
                                                std::function<absl::Status()> check) {
  return std::make_unique<OfDirectory>(directory, std::move(check));
}

absl::StatusOr<std::unique_ptr<FollowerProcesses>> FollowerProcesses::Start(
    int size, const std::function<Command(int rank, const std::string& directory)>& command) {
  std::error_code error;
  const std::string parent = std::filesystem::temp_directory_path(error).string();
  std::string directory = absl::StrCat(error ? "/tmp" : parent, "/trainyard-ranks-XXXXXX");
  if (::mkdtemp(directory.data()) == nullptr) {
    return ErrnoStatus(errno, "make a directory like", directory);
  }
  // Where the parent has left this as SIG_IGN, nobody could wait for a child.
  ::signal(SIGCHLD, SIG_DFL);
  std::unique_ptr<FollowerProcesses> processes(new FollowerProcesses(directory));
  for (int rank = 1; rank < size; ++rank) {
    RETURN_IF_ERROR(processes->StartOne(rank, command(rank, directory)));
  }
  return processes;
}

absl::Status FollowerProcesses::StartOne(int rank, const Command& command) {
  std::vector<std::string> arguments = {"/proc/self/exe"};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = EnvironmentWith(command.variables);
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "start", absl::StrCat("rank ", rank));
  if (child == 0) {
    // Other threads may hold locks, so only calls that need none.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDONLY);
    if (::getppid() != parent || null < 0 || ::dup2(null, STDIN_FILENO) < 0) ::_exit(1);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  followers_.push_back({.pid = child, .ended = {}});
  return absl::OkStatus();
}

FollowerProcesses::~FollowerProcesses() {
  for (const Follower& follower : followers_) {
    if (follower.pid > 0) ::kill(follower.pid, SIGKILL);
  }
  for (const Follower& follower : followers_) {
    if (follower.pid > 0) ::waitpid(follower.pid, nullptr, 0);
  }
  RemoveDirectory();
}

void FollowerProcesses::RemoveDirectory() { RemoveTree(directory_).IgnoreError(); }

size_t FollowerProcesses::Look() {
  size_t running = 0;
  for (size_t i = 0; i < followers_.size(); ++i) {
    Follower& follower = followers_[i];
    if (follower.pid < 0) continue;
    int status = 0;
    if (::waitpid(follower.pid, &status, WNOHANG) != follower.pid) {
      ++running;
      continue;
    }
    follower = {.pid = -1, .ended = HowEnded(int(i) + 1, status)};
  }
  return running;
}

std::unique_ptr<Rendezvous> FollowerProcesses::NewRendezvous() {
  return DirectoryRendezvous(directory_, [this]() -> absl::Status {
    const std::string ended = Ended(absl::ZeroDuration());
    return ended.empty() ? absl::OkStatus() : absl::UnavailableError(ended);
  });
}

std::string FollowerProcesses::Ended(absl::Duration patience) {
  const auto deadline = RealClock().Monotonic() + patience;
  while (true) {
    Look();
    for (const Follower& follower : followers_) {
      if (!follower.ended.empty()) return follower.ended;
    }
    if (RealClock().Monotonic() >= deadline) return "";
    absl::SleepFor(kBetweenLooks);
  }
}

std::jthread FollowerProcesses::Watch(std::function<void()> lost) const {
  std::vector<pid_t> pids;
  for (const Follower& follower : followers_) pids.push_back(follower.pid);
  return std::jthread([pids, lost = std::move(lost)](const std::stop_token& stop) {
    const auto has_ended = [](pid_t pid) {
      siginfo_t info = {};  // The process is left for Look().
      return ::waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
             info.si_pid == pid;
    };
    while (!stop.stop_requested()) {
      if (std::any_of(pids.begin(), pids.end(), has_ended)) return lost();
      absl::SleepFor(kBetweenLooksOfWatch);
    }
  });
}

void FollowerProcesses::WaitForAll(absl::Duration patience) {
  const auto deadline = RealClock().Monotonic() + patience;
  while (Look() > 0 && RealClock().Monotonic() < deadline) absl::SleepFor(kBetweenLooks);
}

}  // namespace trainyard
