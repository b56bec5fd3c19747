// trainyard-worker: one for each machine. It offers the machine's devices to a controller and runs
// ranks on them. Each rank has its own supervisor, which is this program again with --supervise.
// Start with worker/daemon/daemon.h.

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/http/metrics_page.h"
#include "common/last_word.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "common/status_macros.h"
#include "security/certificates.h"
#include "security/credentials.h"
#include "worker/channel/patience.h"
#include "worker/daemon/daemon.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/environment.h"
#include "worker/daemon/gpu_metrics.h"
#include "worker/daemon/gpu_telemetry.h"
#include "worker/daemon/gpus.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/state_directory.h"
#include "worker/daemon/supervisor.h"
#include "worker/service/address.h"
#include "worker/service/controller_stream.h"
#include "worker/service/membership.h"

namespace trainyard {
namespace {

struct Flags {
  std::string controller = kDefaultController;
  std::string join_file;
  std::string token_file;
  std::string authority_file;
  std::string state = "trainyard-worker-state";
  std::string devices = "auto";
  double cores = 0;
  std::vector<std::string> roots;
  std::string interface;
  std::string sandbox = "auto";
  std::string rank_user;
  std::vector<std::string> hidden;
  std::string metrics_listen = "127.0.0.1:0";
  std::string trainer;
  double drain_timeout_seconds = 120;
  std::optional<double> detach_seconds;
  double patience_seconds = absl::ToDoubleSeconds(channel::Patience().step());
};

std::string OwnPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string Hostname() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string OwnConfigDirectory() {
  return ConfigDirectory(std::getenv("XDG_CONFIG_HOME"), std::getenv("HOME"));
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--controller", flags.controller, "Address of the controller, HOST:PORT")
      ->envname("TRAINYARD_CONTROLLER")
      ->capture_default_str();
  app.add_option(
         "--join", flags.join_file,
         "File with the output of 'trainyard token create --role joiner', with which this worker "
         "joins a controller on another machine, or with a JSON Web Token that the controller "
         "accepts (then with --authority); not needed after the worker has joined")
      ->envname("TRAINYARD_JOIN_FILE");
  app.add_option(
         "--authority", flags.authority_file,
         "Certificate of the authority that proves the controller, if it is not the cluster's own")
      ->envname("TRAINYARD_AUTHORITY");
  app.add_option("--token-file", flags.token_file,
                 "File with the token to show to the controller. Default: the file that a "
                 "controller on this machine has written for its own user")
      ->envname("TRAINYARD_TOKEN_FILE");
  app.add_option("--state", flags.state,
                 "Directory for the id, ranks and logs of this worker alone")
      ->capture_default_str();
  app.add_option("--devices", flags.devices,
                 "Devices that this machine offers: cuda, its GPUs (those of CUDA_VISIBLE_DEVICES, "
                 "if it is set); a number, this many CPU ranks; auto, its GPUs if it has any, "
                 "otherwise one CPU rank")
      ->capture_default_str();
  app.add_option("--cores", flags.cores,
                 "Cores that the ranks share; each rank has at least one thread, and the ranks get "
                 "the same share of the memory. Default: all usable cores")
      ->check(CLI::PositiveNumber);
  app.add_option("--root", flags.roots,
                 "Directory below which paths in jobs must lie, repeatable; relative paths start "
                 "at the first. Default: the current directory");
  app.add_option("--interface", flags.interface,
                 "Address or network device for connections between ranks. Default: the address "
                 "that leads to the controller");
  app.add_option("--sandbox", flags.sandbox,
                 "The sandbox that keeps ranks from doing more than training: require, all of it "
                 "(no root, only files below the job's roots, no dangerous system calls); auto, as "
                 "much as this machine allows; off")
      ->capture_default_str();
  app.add_option(
      "--rank-user", flags.rank_user,
      "User that ranks run as if root starts the worker. Default: the owner of the first root");
  app.add_option(
      "--hide", flags.hidden,
      "File or directory that ranks must not see, repeatable; for example, a controller's state");
  app.add_option("--metrics-listen", flags.metrics_listen,
                 "HOST:PORT of the metrics page; port 0 picks a free one")
      ->capture_default_str()
      ->take_last();  // A script may set it, and its user again.
  app.add_option("--trainer", flags.trainer,
                 "Program of the trainer. Default: trainyard-trainer beside this program");
  app.add_option("--drain-timeout", flags.drain_timeout_seconds,
                 "Seconds that ranks have on SIGTERM to write a checkpoint before they are killed")
      ->capture_default_str();
  app.add_option(
         "--detach", flags.detach_seconds,
         "Seconds that the controller waits for this daemon, which may be upgraded, before it "
         "places the jobs of its ranks again. The most is 600, after which ranks without a daemon "
         "end. Default: 600, but 0 in a container or a Slurm step, whose end ends the ranks, too")
      ->check(CLI::Range(0.0, absl::ToDoubleSeconds(channel::kDetach)));
  app.add_option(
         "--patience", flags.patience_seconds,
         "Seconds that a rank may go without progress in a step before it is ended and its job "
         "recovers; three times as long while it starts or checkpoints, and a tenth (but at least "
         "5 seconds) if it sends no heartbeat. Must be the same on all workers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

absl::StatusOr<std::vector<Device>> OfferedDevices(const Flags& flags,
                                                   const DaemonOptions& options) {
  const bool automatic = flags.devices == "auto";
  DeviceOptions cpu = {.cores = flags.cores,
                       .trainer = options.trainer,
                       .environment = options.environment,
                       .best_rates = options.state_directory + "/measured.json"};
  if (automatic || flags.devices == "cuda") {
    GpuOptions gpu = {.cores = flags.cores, .cuda_version = CudaVersion()};
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) gpu.visible = visible;
    absl::StatusOr<std::vector<Device>> gpus = GpuDevices(gpu);
    if (gpus.ok() || !automatic) return gpus;
    LogInfo("no_gpus", {{"reason", gpus.status().message()}, {"offered", "one CPU rank"}});
  } else if (!absl::SimpleAtoi(flags.devices, &cpu.devices)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", flags.devices, ": wanted auto, cuda or a number of CPU ranks"));
  }
  return CpuDevices(cpu);
}

// Returns the paths besides the state directory that ranks must not see.
std::vector<std::string> Secrets(const Flags& flags) {
  std::vector<std::string> paths = flags.hidden;
  paths.insert(paths.end(), {OwnConfigDirectory(), flags.token_file, flags.join_file});
  return paths;
}

// Makes paths absolute, and sets the defaults that depend on this machine.
absl::StatusOr<DaemonOptions> Resolve(const Flags& flags, const StateDirectory& state) {
  DaemonOptions options;
  options.state_directory = state.path();
  options.supervisor = OwnPath();
  options.trainer = flags.trainer;
  if (options.trainer.empty()) {
    options.trainer =
        (std::filesystem::path(options.supervisor).parent_path() / "trainyard-trainer").string();
  }
  options.trainer = std::filesystem::absolute(options.trainer).string();
  if (::access(options.trainer.c_str(), X_OK) != 0) {
    return absl::NotFoundError("no trainer at " + options.trainer +
                               "; say where it is with --trainer");
  }
  for (const std::string& root :
       flags.roots.empty() ? std::vector<std::string>{"."} : flags.roots) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::canonical(root, error);
    if (error) return absl::NotFoundError("--root " + root + ": " + error.message());
    options.roots.push_back(absolute.string());
  }
  options.interface = flags.interface;
  if (options.interface.empty()) {
    ASSIGN_OR_RETURN(options.interface, LocalAddressTowards(flags.controller));
  }
  ASSIGN_OR_RETURN(options.sandbox, ChooseSandbox({.mode = flags.sandbox,
                                                   .user = flags.rank_user,
                                                   .roots = options.roots,
                                                   .state_directory = options.state_directory,
                                                   .hidden = Secrets(flags)}));
  options.patience = channel::Patience(absl::Seconds(flags.patience_seconds));
  options.environment = TrainerEnvironment(environ);
  ASSIGN_OR_RETURN(options.devices, OfferedDevices(flags, options));
  return options;
}

// Returns how long ranks may outlive the daemon. In a place where the end of the daemon ends all
// other processes, there is no next daemon to take the ranks over.
absl::Duration DetachOf(const Flags& flags) {
  if (flags.detach_seconds) return absl::Seconds(*flags.detach_seconds);
  for (const char* name : {"SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "container"}) {
    if (std::getenv(name) != nullptr) return absl::ZeroDuration();
  }
  if (::access("/.dockerenv", F_OK) == 0) return absl::ZeroDuration();
  return channel::kDetach;
}

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  // Slurm sends SIGUSR1 before the end of an allocation (sbatch --signal=B:USR1@120).
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  return signals;
}

// Waits until `until` is true or the time is over. Returns whether another signal came before.
template <typename Condition>
bool WaitOrSignal(Condition until, absl::Duration timeout) {
  const sigset_t signals = EndingSignals();
  const absl::Duration deadline = RealClock().Monotonic() + timeout;
  while (!until() && RealClock().Monotonic() < deadline) {
    const timespec tick = absl::ToTimespec(absl::Milliseconds(20));
    if (::sigtimedwait(&signals, nullptr, &tick) > 0) return true;
  }
  return false;
}

// A rank that is left after this time hangs in the kernel.
constexpr absl::Duration kKillWithin = absl::Seconds(4);

// Lets the ranks checkpoint and stop. A second signal or the timeout kills them.
void DrainAndEnd(Daemon& daemon, absl::Duration timeout) {
  LogInfo("draining", {{"ranks", daemon.num_live_ranks()}});
  const auto no_ranks = [&] { return daemon.num_live_ranks() == 0; };
  daemon.Drain();
  WaitOrSignal(no_ranks, timeout);
  if (!no_ranks()) {
    LogWarning("killing", {{"ranks", daemon.num_live_ranks()}});
    daemon.KillAll();
    WaitOrSignal(no_ranks, kKillWithin);
  }
  // Reports that the controller does not get now are sent by the next daemon on this state
  // directory.
  WaitOrSignal([&] { return daemon.idle(); }, absl::Seconds(2));
}

// Watches the GPUs that are offered, if there are any.
struct GpuWatch {
  std::unique_ptr<GpuMetrics> metrics;
  std::unique_ptr<GpuTelemetry> telemetry;
};

absl::StatusOr<GpuWatch> WatchGpus(const std::vector<Device>& devices,
                                   prometheus::Registry& registry) {
  GpuWatch watch;
  if (!devices.front().gpu) return watch;
  ASSIGN_OR_RETURN(auto nvml, Nvml::Open(kNvmlLibrary, CudaVersion()));
  watch.metrics = std::make_unique<GpuMetrics>(registry);
  watch.telemetry = std::make_unique<GpuTelemetry>(std::move(nvml), devices, *watch.metrics);
  return watch;
}

absl::StatusOr<std::unique_ptr<Membership>> OpenMembership(const Flags& flags,
                                                           const StateDirectory& state) {
  ASSIGN_OR_RETURN(const Address controller, ParseAddress(flags.controller));
  return Membership::Open(
      {.controller = controller,
       .directory = state.path() + "/controller",
       .join_file = flags.join_file,
       .places = {.token_file = flags.token_file,
                  .authority_file = flags.authority_file,
                  .config_directory = OwnConfigDirectory(),
                  .readers = ReadersWhere(std::getenv("KUBERNETES_SERVICE_HOST"))},
       .worker_id = state.worker_id(),
       .hostname = Hostname()});
}

// Passes the last word from the stream's threads to the main thread, which alone writes the file: a
// slow disk must not delay a beat.
class Spoken {
 public:
  void Note(absl::Duration beat) {
    const MutexLock lock(mutex_);
    word_ = LastWord{.at = RealClock().Monotonic(), .beat = beat};
  }
  void WriteTo(const std::string& state_directory) {
    std::optional<LastWord> word;
    {
      const MutexLock lock(mutex_);
      std::swap(word, word_);
    }
    if (!word) return;
    const absl::Status status = WriteLastWord(state_directory, *word);
    if (!status.ok()) LogWarning("last_word_not_written", {{"error", status.message()}});
  }

 private:
  Mutex mutex_;
  // Absent: there was none since the last write.
  std::optional<LastWord> word_ ABSL_GUARDED_BY(mutex_);
};

void ShowExpiry(const std::optional<TlsMaterial>& tls, WorkerMetrics& metrics) {
  if (!tls) return;
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(tls->certificates);
  if (facts.ok()) metrics.CertificateExpires(facts->not_after);
}

// Returns the signal that ends the daemon. Meanwhile, keeps the files up to date that probes read.
int WaitForEnd(const StateDirectory& state, Spoken& spoken, Membership& membership,
               MetricsPage& page, WorkerMetrics& metrics) {
  const sigset_t signals = EndingSignals();
  const timespec look = {.tv_sec = 1, .tv_nsec = 0};
  std::optional<TlsMaterial> shown;
  for (;;) {
    const int signal = ::sigtimedwait(&signals, nullptr, &look);
    if (signal >= 0) return signal;
    spoken.WriteTo(state.path());
    const std::optional<TlsMaterial> tls = membership.PageTls();
    if (tls == shown) continue;
    page.Renew(tls);
    ShowExpiry(tls, metrics);
    shown = tls;
  }
}

absl::Status Serve(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto state, StateDirectory::Open(flags.state));
  const mode_t umask_of_trainers = ::umask(kPrivateUmask);
  RETURN_IF_ERROR(RemoveLastWord(state->path()));
  ASSIGN_OR_RETURN(DaemonOptions options, Resolve(flags, *state));
  WorkerMetrics metrics(Hostname());
  ASSIGN_OR_RETURN(const Address metrics_listen, ParseAddress(flags.metrics_listen));
  ASSIGN_OR_RETURN(const auto membership, OpenMembership(flags, *state));
  // Off loopback, the page needs a certificate. A worker without one joins here.
  if (!metrics_listen.loopback()) RETURN_IF_ERROR(membership->Current().status());
  ASSIGN_OR_RETURN(const auto page,
                   MetricsPage::Serve(metrics_listen, metrics.registry(), membership->PageTls()));
  ShowExpiry(membership->PageTls(), metrics);
  ASSIGN_OR_RETURN(const GpuWatch gpus, WatchGpus(options.devices, *metrics.registry()));
  options.gpus = gpus.telemetry.get();
  options.umask = umask_of_trainers;
  ASSIGN_OR_RETURN(const auto daemon, Daemon::Create(options, metrics));
  std::once_flag ready;
  Spoken spoken;
  ASSIGN_OR_RETURN(auto stream, ControllerStream::Create(
                                    {.controller = flags.controller,
                                     .credential = [&] { return membership->Current(); },
                                     .refused = [&] { membership->Refused(); },
                                     .worker_id = state->worker_id(),
                                     .instance_id = RandomId(),
                                     .hostname = Hostname(),
                                     .roots = options.roots,
                                     .metrics_url = page->url(),
                                     .detach = DetachOf(flags),
                                     .on_registered =
                                         [&] {
                                           std::call_once(ready, [&] {
                                             std::cout << "ready worker=" << state->worker_id()
                                                       << " controller=" << flags.controller
                                                       << " metrics=" << page->url() << "\n"
                                                       << std::flush;
                                           });
                                         },
                                     .on_sent = [&](absl::Duration beat) { spoken.Note(beat); }},
                                    *daemon));
  const int signal = WaitForEnd(*state, spoken, *membership, *page, metrics);
  if (signal == SIGUSR2) {
    stream.reset();  // The controller sees the end of the stream, and waits.
    LogInfo("handed_over", {{"ranks", daemon->num_live_ranks()}});
  } else {
    DrainAndEnd(*daemon, absl::Seconds(flags.drain_timeout_seconds));
    LogInfo("ended");
  }
  // Everything is reported and stored. The remaining threads need not be ended one by one, and a
  // daemon that ends early lets the next one start early.
  ::_exit(0);
}

// Absent: go on. The macro would return CLI11's own exit codes.
std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  const int code = parse();
  if (code < 0) return std::nullopt;
  return code == 0 ? 0 : 2;
}

int Main(int argc, char** argv) {
  // This comes first, because a supervisor must have one thread and start quickly.
  if (argc == 3 && std::string(argv[1]) == "--supervise") {
    if (const absl::Status status = Supervise(argv[2]); !status.ok()) {
      LogError("supervise_failed", {{"directory", argv[2]}, {"error", status.message()}});
      return 1;
    }
    return 0;
  }
  CLI::App app(
      "Offers this machine's devices to a Trainyard controller and runs ranks on them.\n"
      "SIGTERM lets the ranks checkpoint and stop; SIGUSR2 ends this program alone, and its "
      "successor on the same state directory takes the ranks over.\n"
      "Example: trainyard-worker --controller 127.0.0.1:7070 --state worker-state "
      "--devices 2",
      "trainyard-worker");
  app.set_version_flag("--version", std::string(Version()) + " (" + Revision() + ")");
  Flags flags;
  AddFlags(app, flags);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  // Every thread inherits the mask, so that only Serve takes these signals.
  const sigset_t signals = EndingSignals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  const absl::Status status = Serve(flags);
  std::cerr << "trainyard-worker: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
