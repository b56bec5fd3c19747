#include "tests/testing/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/files.h"

namespace trainyard::testing {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int Truncated(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  CHECK(fd >= 0) << path;
  return fd;
}

}  // namespace

Process::Process(const ProcessOptions& options) {
  std::vector<std::string> argv = options.argv, environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (options.environment.count(text.substr(0, text.find('='))) == 0) environment.push_back(text);
  }
  for (const auto& [name, value] : options.environment) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  const std::vector<char*> words = Pointers(argv), variables = Pointers(environment);
  const int output = Truncated(options.output), errors = Truncated(options.errors);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    if (::chdir(options.directory.c_str()) == 0) ::execve(words[0], words.data(), variables.data());
    ::_exit(127);
  }
  for (const int fd : {input, output, errors}) ::close(fd);
}

Process::~Process() {
  if (!Running()) return;
  Signal(SIGTERM);
  if (Wait(absl::Seconds(40)) >= 0) return;
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

void Process::Signal(int signal) {
  if (Running()) Kill(pid_, signal);
}

bool Process::Running() { return Wait(absl::ZeroDuration()) < 0; }

int Process::Wait(absl::Duration patience) {
  WaitUntil(
      [this] {
        int status = 0;
        if (exit_code_ < 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
          exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        return exit_code_ >= 0;
      },
      patience);
  return exit_code_;
}

std::ostream& operator<<(std::ostream& out, const Finished& finished) {
  return out << "exit code " << finished.exit_code << "\noutput: " << finished.output
             << "\nerrors: " << finished.errors;
}

void Kill(pid_t pid, int signal) {
  CHECK(pid > 1) << pid;
  ::kill(pid, signal);  // That it is gone already is fine.
}

bool WaitUntil(const std::function<bool()>& done, absl::Duration patience, absl::Duration pause) {
  const absl::Time deadline = absl::Now() + patience;
  for (;;) {
    if (done()) return true;
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(pause);
  }
}

std::vector<Found> FindProcesses(const std::string& text) {
  std::vector<Found> found;
  const auto names = ListDirectory("/proc");
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid == ::getpid()) continue;
    const auto command = ReadFile(absl::StrCat("/proc/", name, "/cmdline"));  // Empty for zombies.
    if (!command.ok()) continue;
    std::string words = *command;
    std::replace(words.begin(), words.end(), '\0', ' ');
    if (absl::StrContains(words, text)) found.push_back({pid, words});
  }
  return found;
}

}  // namespace trainyard::testing
