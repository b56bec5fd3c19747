#include "worker/daemon/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/log.h"
#include "common/patient_read.h"
#include "common/status_macros.h"
#include "worker/daemon/log_files.h"
#include "worker/daemon/processes.h"
#include "worker/daemon/rank_directory.h"
#include "worker/daemon/state_directory.h"

namespace trainyard {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

class Supervisor {
 public:
  Supervisor(std::string directory, Launch launch)
      : directory_(std::move(directory)),
        launch_(std::move(launch)),
        log_(directory_, launch_.log_file_bytes, launch_.log_files) {}

  absl::Status Start();
  void WaitForTrainer();
  void ReapDescendants();
  RankExit Report() const;

 private:
  [[noreturn]] void BecomeTrainer(int output, pid_t supervisor) const;
  void HandleSignals();
  void Reap();
  void CopyOutput();

  const std::string directory_;
  const Launch launch_;
  LogWriter log_;
  FileDescriptor signals_;  // A signalfd.
  FileDescriptor output_;   // Of the trainer; none once nobody can write.
  pid_t trainer_ = 0;
  bool asked_to_stop_ = false;
  std::optional<absl::Duration> kill_at_;  // A monotonic time.
  std::optional<int> wait_status_;         // The trainer's, once it is gone.
};

absl::Status Supervisor::Start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "open a pipe for", launch_.trainer);
  output_ = FileDescriptor(ends[0]);
  const FileDescriptor input(ends[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  signals_ = FileDescriptor(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoStatus(errno, "open a signalfd for", launch_.trainer);
  const pid_t self = ::getpid();
  trainer_ = ::fork();
  if (trainer_ < 0) return ErrnoStatus(errno, "fork for", launch_.trainer);
  if (trainer_ == 0) BecomeTrainer(input.get(), self);
  return absl::OkStatus();
}

void Supervisor::BecomeTrainer(int output, pid_t supervisor) const {
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::umask(launch_.umask);
  const absl::Status entered = launch_.sandbox ? Enter(*launch_.sandbox) : absl::OkStatus();
  if (!entered.ok()) {
    const std::string message = absl::StrCat("cannot enter the sandbox: ", entered.message(), "\n");
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, message.data(), message.size());
    ::_exit(127);
  }
  // Set here and not earlier, because a process that becomes another user loses the setting.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor) ::_exit(127);  // The supervisor died before the line above.
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::string failed = launch_.working_directory;
  if (failed.empty() || ::chdir(failed.c_str()) == 0) {
    failed = launch_.trainer;
    const auto arguments = TrainerArguments(launch_, RankDirectory(directory_));
    ::execve(launch_.trainer.c_str(), Pointers(arguments).data(),
             Pointers(launch_.environment).data());
  }
  const std::string message = absl::StrCat("cannot start in ", launch_.working_directory, ": ",
                                           failed, ": ", std::strerror(errno), "\n");
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, message.data(), message.size());
  ::_exit(127);
}

void Supervisor::WaitForTrainer() {
  while (!wait_status_) {
    pollfd ready[] = {{signals_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
    int timeout_ms = -1;
    if (kill_at_) {
      const absl::Duration left = *kill_at_ - RealClock().Monotonic();
      timeout_ms = int(std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
    }
    ::poll(ready, output_.valid() ? 2 : 1, timeout_ms);
    CopyOutput();
    HandleSignals();
    if (kill_at_ && RealClock().Monotonic() >= *kill_at_) {
      ::kill(trainer_, SIGKILL);
      kill_at_.reset();
    }
  }
}

void Supervisor::HandleSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == ssize_t(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) {
      Reap();
    } else if (info.ssi_signo == SIGTERM && !asked_to_stop_) {
      asked_to_stop_ = true;
      kill_at_ = RealClock().Monotonic() + kKillGrace;
      ::kill(trainer_, SIGTERM);
    }
  }
}

void Supervisor::Reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == trainer_) wait_status_ = status;
  }
}

void Supervisor::CopyOutput() {
  char chunk[1 << 16];
  // The limit is above the pipe's size. Signals must not wait for a trainer that writes without
  // end.
  for (int i = 0; i < 32 && output_.valid(); ++i) {
    const ssize_t n = ::read(output_.get(), chunk, sizeof(chunk));
    if (n > 0) {
      log_.Append({chunk, size_t(n)});
    } else if (n == 0) {
      output_ = FileDescriptor();  // No writer is left.
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Kills all children until there are none. Processes that the trainer has started and left behind
// are children of this process, which is their subreaper.
void Supervisor::ReapDescendants() {
  while (::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD) {
    for (const ProcessStat& process : AllProcesses()) {
      if (process.parent == ::getpid() && !process.dead) ::kill(process.identity.pid, SIGKILL);
    }
    ::waitpid(-1, nullptr, 0);
  }
  CopyOutput();
}

RankExit Supervisor::Report() const {
  RankExit exit = {.cause = ExitCause::kOther};
  const auto own_words =
      ReadPatiently([&] { return ReadTrainersReport(RankDirectory(directory_)); }, kReadPatience);
  if (own_words.ok()) {
    exit.cause = own_words->cause;
    exit.message = own_words->message;
  }
  const int status = wait_status_.value_or(0);
  std::string how;
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
    exit.cause = ExitCause::kSignal;
    how = absl::StrCat("ended by signal ", exit.signal, " (", ::strsignal(exit.signal), ")",
                       asked_to_stop_ ? " after an order to stop" : "");
  } else {
    exit.exit_code = WEXITSTATUS(status);
    how = absl::StrCat("exited with code ", exit.exit_code, " and left no report");
  }
  if (!own_words.ok()) {
    const absl::string_view tail = absl::StripAsciiWhitespace(log_.tail());
    exit.message = tail.empty() ? how : absl::StrCat(how, "; its last output: ", tail);
  } else if (exit.signal != 0) {
    exit.message = absl::StrCat(how, "; it had said: ", exit.message);
  }
  return exit;
}

}  // namespace

absl::Status Supervise(const std::string& directory) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::umask(kPrivateUmask);
  const auto self = ReadProcess(::getpid());
  if (!self) return absl::InternalError("cannot read /proc/self/stat: is /proc mounted?");
  const std::string report = absl::StrCat(directory, "/exit_report.json");
  const auto not_started = [&](const absl::Status& status) {
    return WriteExitReport(report,
                           {.cause = CauseOfFailedStart(status),
                            .message = absl::StrCat("could not be started: ", status.message())});
  };
  const absl::Status told =
      WriteSupervisor(absl::StrCat(directory, "/supervisor.json"), self->identity);
  if (!told.ok()) return not_started(told);
  const auto launch = ReadPatiently(
      [&] { return ReadLaunch(absl::StrCat(directory, "/launch.json")); }, kReadPatience);
  if (!launch.ok()) {
    return WriteExitReport(report, {.message = std::string(launch.status().message())});
  }
  Supervisor supervisor(directory, *launch);
  if (const absl::Status started = supervisor.Start(); !started.ok()) return not_started(started);
  supervisor.WaitForTrainer();
  supervisor.ReapDescendants();
  if (const absl::Status synced = RankDirectory(directory).SyncReports(); !synced.ok()) {
    LogError("reports_not_synced", {{"error", synced.message()},
                                    {"effect", "the last ones are lost if the power goes now"}});
  }
  return WriteExitReport(report, supervisor.Report());
}

}  // namespace trainyard
