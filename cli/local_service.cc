#include "cli/local_service.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/child.h"
#include "cli/client.h"
#include "cli/ports.h"
#include "cli/predecessor.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

constexpr absl::Duration kStartWithin = absl::Seconds(60);
// After that the worker kills its ranks, which takes some seconds.
constexpr absl::Duration kDrainWithin = absl::Seconds(20);
constexpr absl::Duration kKillWithin = absl::Seconds(5);
constexpr absl::Duration kControllerStopWithin = absl::Seconds(10);
const absl::Duration kPredecessorsWithin = kDrainWithin + absl::Seconds(15);
constexpr size_t kMaxDeaths = 5;  // Within a minute.
constexpr uint64_t kMaxLogBytes = 16 << 20;

absl::Duration Now() { return RealClock().Monotonic(); }

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// Returns the value of "key=" in a line of words. Empty: there is none.
std::string WordValue(absl::string_view line, absl::string_view key) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (word.substr(0, key.size()) == key) return std::string(word.substr(key.size()));
  }
  return "";
}

}  // namespace

LocalService::LocalService(LocalServiceOptions options, Output& output)
    : options_(std::move(options)), output_(output) {}

std::string LocalService::LogPath(const Child& child) const {
  return absl::StrCat(options_.state, "/logs/", child.name, ".log");
}

absl::Status LocalService::Run() {
  RETURN_IF_ERROR(Prepare());
  absl::Status status = stop_signals_ == 0 ? StartController() : absl::OkStatus();
  if (status.ok() && stop_signals_ == 0) status = StartWorkers();
  if (status.ok() && stop_signals_ == 0) {
    serving_ = true;
    output_.Line(absl::StrCat("ready controller=", address_, " metrics=", metrics_url_));
    status = PumpUntil([] { return false; }, absl::InfiniteDuration());
  }
  if (!status.ok()) output_.Error(status.message());  // Before stopping, which takes seconds.
  Stop();
  return status.ok() ? status : absl::Status(status.code(), "ended the service");
}

absl::Status LocalService::CheckPorts() const {
  RETURN_IF_ERROR(CheckListenable("--listen", options_.listen));
  return CheckListenable("--metrics-listen", options_.metrics_listen);
}

absl::Status LocalService::AwaitPredecessors() {
  std::string in_use;
  const auto gone = [&] {
    in_use = FindPredecessor(options_.state);
    return in_use.empty();
  };
  if (gone()) return absl::OkStatus();
  output_.Note(absl::StrCat(in_use,
                            " is still in use by a process of an earlier 'trainyard up'; "
                            "waiting until the process has ended"));
  RETURN_IF_ERROR(PumpUntil(gone, kPredecessorsWithin));
  if (in_use.empty() || stop_signals_ != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(in_use,
                   " is in use by another process; end that process, or give --state "
                   "another directory"));
}

absl::Status LocalService::Prepare() {
  const std::string lock = options_.state + "/up.lock";
  const absl::Status ports = CheckPorts();
  // A port may become free when the controller of an earlier 'up' ends. If no 'up' has run here,
  // nothing is made.
  if (!ports.ok() && (!absl::IsAlreadyExists(ports) || !Exists(lock))) return ports;
  RETURN_IF_ERROR(MakeDirectories(options_.state + "/logs"));
  lock_ = FileDescriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.valid()) return ErrnoStatus(errno, "open", lock);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another 'trainyard up' uses ", options_.state,
                                                 "; end it, or give --state another directory"));
  }
  // Blocked before any thread exists. All threads inherit the mask, so only ReadSignals gets
  // signals.
  const sigset_t set = HandledSignals();
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  CHECK(signals_.valid()) << errno;
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) << errno;
  // The reader of the ready line may have ended before the next note. This must not end the
  // service.
  ::signal(SIGPIPE, SIG_IGN);
  RETURN_IF_ERROR(AwaitPredecessors());
  return stop_signals_ == 0 ? CheckPorts() : absl::OkStatus();
}

absl::Status LocalService::Start(Child& child) {
  ASSIGN_OR_RETURN(SpawnedChild spawned, SpawnChild(child.argv, LogPath(child)));
  child.pid = spawned.pid;
  child.output = std::move(spawned.output);
  child.text.clear();
  child.start_at = absl::InfiniteDuration();
  return absl::OkStatus();
}

absl::Status LocalService::StartController() {
  Child controller;
  controller.name = "controller";
  controller.argv = {options_.binary_directory + "/trainyard-controller",
                     "--state",
                     options_.state + "/controller",
                     "--listen",
                     options_.listen,
                     "--metrics-listen",
                     options_.metrics_listen};
  children_.push_back(std::move(controller));
  RETURN_IF_ERROR(Start(children_[0]));
  const auto ready = [this] { return children_[0].text.find('\n') != std::string::npos; };
  RETURN_IF_ERROR(PumpUntil(ready, kStartWithin));
  if (stop_signals_ != 0) return absl::OkStatus();
  if (!ready()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the controller did not start within a minute; see ", LogPath(children_[0])));
  }
  const std::string line = children_[0].text.substr(0, children_[0].text.find('\n'));
  address_ = WordValue(line, "controller=");
  metrics_url_ = WordValue(line, "metrics=");
  if (address_.empty()) {
    return absl::InternalError(absl::StrCat(
        "the controller said '", line, "' where 'ready controller=ADDR metrics=URL' was wanted"));
  }
  // A restarted controller must come back at the address that clients and workers know.
  children_[0].argv[4] = address_;
  std::string metrics = metrics_url_.substr(metrics_url_.find("//") + 2);
  children_[0].argv[6] = metrics.substr(0, metrics.find('/'));
  return absl::OkStatus();
}

// Returns all paths that the state directory has or may get, except those that jobs put there. An
// earlier 'up' may have had more workers.
std::vector<std::string> LocalService::Secrets() const {
  std::set<std::string> names = {"controller", "logs", "up.lock"};
  for (int i = 0; i < options_.workers; ++i) names.insert(absl::StrCat("worker-", i));
  for (const std::string& name :
       ListDirectory(options_.state).value_or(std::vector<std::string>())) {
    if (absl::StartsWith(name, "worker-")) names.insert(name);
  }
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(absl::StrCat(options_.state, "/", name));
  return paths;
}

absl::Status LocalService::StartWorkers() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  CHECK(sched_getaffinity(0, sizeof(usable), &usable) == 0) << errno;
  const double cores = double(CPU_COUNT(&usable)) / options_.workers;
  // If there were several workers, each would offer every GPU.
  const std::string one_each = options_.workers == 1 ? "auto" : "1";
  const std::string devices =
      options_.devices_per_worker > 0 ? absl::StrCat(options_.devices_per_worker) : one_each;
  for (int i = 0; i < options_.workers; ++i) {
    Child worker;
    worker.name = absl::StrCat("worker-", i);
    worker.argv = {options_.binary_directory + "/trainyard-worker",
                   "--controller",
                   address_,
                   "--state",
                   absl::StrCat(options_.state, "/", worker.name),
                   "--devices",
                   devices,
                   "--cores",
                   absl::StrCat(cores),
                   "--metrics-listen",
                   "127.0.0.1:0",
                   "--drain-timeout",
                   absl::StrCat(absl::ToInt64Seconds(kDrainWithin)),
                   "--trainer",
                   options_.binary_directory + "/trainyard-trainer",
                   "--token-file",
                   options_.state + "/controller/token"};
    if (options_.patience_seconds > 0) {
      worker.argv.insert(worker.argv.end(),
                         {"--patience", absl::StrCat(options_.patience_seconds)});
    }
    for (const std::string& path : Secrets()) {
      worker.argv.insert(worker.argv.end(), {"--hide", path});
    }
    for (const std::string& root : options_.roots) {
      worker.argv.insert(worker.argv.end(), {"--root", root});
    }
    children_.push_back(std::move(worker));
    RETURN_IF_ERROR(Start(children_.back()));
  }
  // One attempt may take a second if the controller hangs. It delays signals by no more.
  Client client(address_, {.token_file = options_.state + "/controller/token"},
                {.call = absl::Seconds(1),
                 .unreachable = absl::ZeroDuration(),
                 .away = absl::ZeroDuration()});
  const auto registered = [&] {
    const auto response =
        client.Call(&v1::ClusterService::Stub::ListWorkers, v1::ListWorkersRequest());
    return response.ok() && std::count_if(response->workers().begin(), response->workers().end(),
                                          [](const v1::Worker& worker) {
                                            return worker.state() == v1::WORKER_STATE_READY;
                                          }) >= options_.workers;
  };
  RETURN_IF_ERROR(PumpUntil(registered, kStartWithin));
  if (stop_signals_ == 0 && !registered()) {
    return absl::DeadlineExceededError(
        absl::StrCat("not all workers registered within a minute; see ", options_.state, "/logs"));
  }
  return absl::OkStatus();
}

absl::Status LocalService::PumpUntil(const std::function<bool()>& done, absl::Duration patience) {
  const absl::Duration deadline = Now() + patience;
  absl::Duration rotate_at = Now() + absl::Seconds(1);
  while (!done() && stop_signals_ == 0 && Now() < deadline) {
    // Output and ends of children wake the poll. The time is for restarts, deadlines and `done`.
    ReadSignals(serving_ ? absl::Milliseconds(500) : absl::Milliseconds(20));
    for (Child& child : children_) ReadOutput(child);
    Reap();
    RETURN_IF_ERROR(RestartDead());
    if (Now() < rotate_at) continue;
    rotate_at = Now() + absl::Seconds(1);
    for (const Child& child : children_) RotateLog(LogPath(child), kMaxLogBytes);
  }
  return absl::OkStatus();
}

void LocalService::ReadSignals(absl::Duration wait) {
  absl::Duration until = Now() + wait;
  for (const Child& child : children_) until = std::min(until, child.start_at);
  const absl::Duration left = std::max(until - Now(), absl::Milliseconds(1));
  std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}};
  for (const Child& child : children_) {
    if (child.output.valid()) polled.push_back({child.output.get(), POLLIN, 0});
  }
  ::poll(polled.data(), polled.size(), int(absl::ToInt64Milliseconds(left)));
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) ++stop_signals_;
  }
}

void LocalService::ReadOutput(Child& child) {
  if (!child.output.valid()) return;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(child.output.get(), buffer, sizeof(buffer));
    if (n > 0 && child.text.size() < sizeof(buffer)) child.text.append(buffer, size_t(n));
    if (n > 0) continue;
    if (n == 0) child.output = FileDescriptor();
    return;
  }
}

void LocalService::Reap() {
  // Also reaps orphans of dead workers. A process that waits for a rank's end must not see a
  // zombie.
  int wait_status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    for (Child& child : children_) {
      if (child.pid != pid) continue;
      child.pid = -1;
      ended_.emplace_back(size_t(&child - children_.data()), wait_status);
    }
  }
}

absl::Status LocalService::Died(Child& child, int wait_status) {
  const std::string what = absl::StrCat(child.name, " ", DescribeExit(wait_status));
  const std::string tail = Tail(LogPath(child), 3);
  if (!serving_) {
    return absl::UnavailableError(
        absl::StrCat(what, " while starting; ", LogPath(child), " ends with:\n", tail));
  }
  const absl::Duration now = Now();
  child.deaths.push_back(now);
  while (now - child.deaths.front() > absl::Minutes(1)) child.deaths.pop_front();
  if (child.deaths.size() > kMaxDeaths) {
    return absl::UnavailableError(absl::StrCat(what, ", the sixth end within a minute; ",
                                               LogPath(child), " ends with:\n", tail));
  }
  child.start_at = now + absl::Milliseconds(100) * (1 << (child.deaths.size() - 1));
  output_.Note(absl::StrCat("up: ", what, "; starting it again (log: ", LogPath(child), ")"));
  return absl::OkStatus();
}

absl::Status LocalService::RestartDead() {
  const auto ended = std::exchange(ended_, {});
  if (stop_signals_ != 0) return absl::OkStatus();
  for (const auto& [index, wait_status] : ended) {
    RETURN_IF_ERROR(Died(children_[index], wait_status));
  }
  for (Child& child : children_) {
    if (child.start_at <= Now()) RETURN_IF_ERROR(Start(child));
  }
  return absl::OkStatus();
}

void LocalService::Signal(const Child& child, int signal) {
  if (child.pid <= 0) return;
  ::kill(child.pid, signal);
  ::kill(child.pid, SIGCONT);  // A process that somebody has stopped would not see the signal.
}

bool LocalService::AllGone(size_t first) const {
  return std::all_of(children_.begin() + ptrdiff_t(std::min(first, children_.size())),
                     children_.end(), [](const Child& child) { return child.pid < 0; });
}

void LocalService::Stop() {
  // Waits until the children from `first` on have ended, until `patience` is over, or until the
  // user has sent `signals` signals.
  const auto wait_for = [&](size_t first, absl::Duration patience, int signals) {
    const absl::Duration deadline = Now() + patience;
    while (!AllGone(first) && Now() < deadline && stop_signals_ < signals) {
      ReadSignals(absl::Milliseconds(20));
      for (Child& child : children_) ReadOutput(child);
      Reap();
    }
  };
  if (serving_)
    output_.Note("up: stopping; ranks write a checkpoint first (once more to stop at once)");
  for (size_t i = 1; i < children_.size(); ++i) Signal(children_[i], SIGTERM);
  wait_for(1, kDrainWithin, 2);
  // This is another signal than the first, because the first may still be pending, and two pending
  // signals of one kind count as one. The workers kill their ranks and report that as no failure.
  for (size_t i = 1; i < children_.size(); ++i) Signal(children_[i], SIGINT);
  wait_for(1, kKillWithin, 3);
  for (size_t i = 1; i < children_.size(); ++i) Signal(children_[i], SIGKILL);
  if (!children_.empty()) Signal(children_.front(), SIGTERM);
  wait_for(0, kControllerStopWithin, 3);
  for (const Child& child : children_) Signal(child, SIGKILL);
  KillOrphans();
}

void LocalService::KillOrphans() {
  // The children of a killed parent become ours only when it has ended, so look until none is left.
  for (;;) {
    pid_t reaped = 0;
    do {
      reaped = ::waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    if (reaped < 0 && errno == ECHILD) return;  // 0: some are alive; errno is then of another call.
    for (const pid_t pid : ChildrenOfThisProcess()) ::kill(pid, SIGKILL);
    ReadSignals(absl::Milliseconds(10));
  }
}

}  // namespace trainyard::cli
