#include "cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/process.h"

namespace trainyard::cli {
namespace {

// Runs between fork and exec of a threaded program, so it may only make async-signal-safe calls.
[[noreturn]] void Become(const std::vector<char*>& argv, int output, int log, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  setpgid(0, 0);  // Ctrl-C must reach the parent alone, which ends its children in order.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // The parent died before the line above.
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

absl::StatusOr<SpawnedChild> SpawnChild(const std::vector<std::string>& argv,
                                        const std::string& log) {
  if (::access(argv[0].c_str(), X_OK) != 0) return ErrnoStatus(errno, "run", argv[0]);
  const FileDescriptor log_file(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log_file.valid()) return ErrnoStatus(errno, "open", log);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe for", argv[0]);
  FileDescriptor output(ends[0]);
  const FileDescriptor input(ends[1]);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Become(words, input.get(), log_file.get(), parent);
  if (pid < 0) return ErrnoStatus(errno, "start", argv[0]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  return SpawnedChild{pid, std::move(output)};
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(wait_status));
  }
  return absl::StrCat("exited with ", WEXITSTATUS(wait_status));
}

std::string Tail(const std::string& path, int lines) {
  const auto text = ReadFile(path);
  if (!text.ok()) return "";
  std::vector<absl::string_view> all = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (all.size() > size_t(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

void RotateLog(const std::string& path, uint64_t limit_bytes) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size <= limit_bytes) return;
  // Copies and truncates, because the writer has the file open. What it writes in between is lost.
  std::filesystem::copy_file(path, path + ".1", std::filesystem::copy_options::overwrite_existing,
                             error);
  std::filesystem::resize_file(path, 0, error);
}

std::vector<pid_t> ChildrenOfThisProcess() {
  std::vector<pid_t> children;
  for (const ProcessStat& process : AllProcesses()) {
    if (process.parent == ::getpid()) children.push_back(process.identity.pid);
  }
  return children;
}

}  // namespace trainyard::cli
