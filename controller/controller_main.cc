// trainyard-controller: the service. Start with service/server.h.

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/build_info.h"
#include "common/http/metrics_page.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/status_macros.h"
#include "controller/access/owner_commands.h"
#include "controller/service/grpc_log.h"
#include "controller/service/server.h"
#include "controller/store/backup.h"
#include "security/credentials.h"

namespace trainyard::controller {
namespace {

// Every connection takes a descriptor, and the limit bounds their number (service/acceptor.h).
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) LogWarning("descriptor_limit_not_raised");
}

// Makes malloc return memory to the system. Large requests come in bursts (docs/reliability.md, S7)
// on many threads. By default each thread has its own heap, and large blocks stay in it for later
// use.
void GiveMemoryBack() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

sigset_t StopSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  return signals;
}

// Gives the page the server's newest certificate while waiting.
int WaitForSignal(const sigset_t& signals, const Server& server, MetricsPage& page) {
  const timespec look = {.tv_sec = 10, .tv_nsec = 0};
  for (;;) {
    const int signal = ::sigtimedwait(&signals, nullptr, &look);
    if (signal >= 0) return signal;
    const auto tls = server.access().PageTls();
    if (tls.ok()) page.Renew(*tls);
    if (!tls.ok()) LogError("page_certificate_unreadable", {{"error", tls.status().message()}});
  }
}

// Switches off Debian's search for deadlocks at every lock of Abseil, which gRPC uses.
void LockFast() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// Returns only if the controller cannot serve.
absl::Status Serve(const ServerOptions& options, const Address& metrics_listen) {
  // The signals are blocked before any thread starts, so that only the wait below receives them.
  const sigset_t signals = StopSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  GiveMemoryBack();
  LockFast();
  LogWhatGrpcSays();
  ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Start(options, RealClock()));
  ASSIGN_OR_RETURN(const std::optional<TlsMaterial> tls, server->access().PageTls());
  ASSIGN_OR_RETURN(
      std::unique_ptr<MetricsPage> page,
      MetricsPage::Serve(metrics_listen, server->registry(), tls,
                         [&server](const HttpRequest& r) { return server->site().Answer(r); }));
  const std::string ready = absl::StrCat("ready controller=", server->address().ToString(),
                                         " metrics=", page->url(), "\n");
  std::fputs(ready.c_str(), stdout);
  std::fflush(stdout);
  LogInfo("ready", {{"controller", server->address().ToString()},
                    {"metrics", page->address().ToString()},
                    {"state", options.state_directory},
                    {"version", Version()},
                    {"revision", Revision()}});
  const int signal = WaitForSignal(signals, *server, *page);
  LogInfo("stopping", {{"signal", signal}});
  page.reset();  // The page reads from the server below.
  server.reset();
  LogInfo("stopped");
  // Everything is stored. The end of the process ends whatever still runs.
  ::_exit(0);
}

// Replaces the store by the backup. Does not serve, so that a restart does not restore again.
absl::Status Restore(const std::string& state, const std::string& backup) {
  ASSIGN_OR_RETURN(const std::string aside, RestoreStore(state, backup, RealClock().Now()));
  std::printf("restored %s from %s%s%s\nStart the controller without --restore.\n", state.c_str(),
              backup.c_str(), aside.empty() ? "" : "; the old files are in ", aside.c_str());
  return absl::OkStatus();
}

void AddStoreOptions(CLI::App& app, ServerOptions& options, std::string& backup_every,
                     std::string& restore) {
  auto* directory =
      app.add_option("--backup-directory", options.recovery.backup_directory,
                     "Directory for backups of the store, used by this controller alone; the "
                     "newest 24 are kept. It may be on a mount of another machine");
  app.add_option("--backup-every", backup_every, "How often to back up the store: 10m, 1h")
      ->needs(directory);
  app.add_option("--restore", restore,
                 "Replace the store by this backup, and end. The old files are moved to "
                 "STATE/damaged-TIME; jobs that were live continue with new attempts");
  app.add_flag("--accept-loss", options.recovery.accept_loss,
               "Start although acknowledged transactions or request ids are missing or the witness "
               "is damaged; the log says what is missing");
}

int Main(int argc, char** argv) {
  ::umask(077);  // Nobody else may read specs, logs and grants.
  CLI::App app(
      "The Trainyard controller: takes jobs over gRPC, keeps them, places them on workers.\n\n"
      "Prints one line `ready controller=HOST:PORT metrics=URL` when it serves. SIGTERM ends it; "
      "jobs go on running on their workers, and the next controller on the same state directory "
      "takes them over.");
  app.set_version_flag("--version", absl::StrCat(Version(), " (", Revision(), ")"));
  ServerOptions options;
  std::string listen = kDefaultController, metrics_listen = "127.0.0.1:9464";
  app.add_option("--state", options.state_directory,
                 "Directory of the store; each controller needs its own")
      ->required();
  app.add_option("--listen", listen, "Address of the API; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--metrics-listen", metrics_listen,
                 "Address of the pages: /metrics for Prometheus, / for people (docs/page.md)")
      ->capture_default_str();
  ServerCertificate own;
  auto* key = app.add_option("--tls-key", own.key_path, "Private key of your own, PEM, mode 0600");
  app.add_option("--tls-certificate", own.certificate_path,
                 "Certificates for the key, which prove this controller instead of the "
                 "authority's; both files may be replaced at any time")
      ->needs(key);
  key->needs("--tls-certificate");
  app.add_option("--namespaces", options.namespaces_file,
                 "File that names the cluster's namespaces and their limits (docs/access.md); "
                 "may be changed at any time. Default: any namespace, without limits");
  app.add_option("--issuers", options.issuers_file,
                 "File that names the issuers of JSON Web Tokens, and the roles of their people "
                 "and machines (docs/access.md); may be changed at any time");
  OwnerCommands commands(app, options.state_directory);
  std::string backup_every, restore;
  AddStoreOptions(app, options, backup_every, restore);
  // The macro would return CLI11's own exit codes.
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  if (const int code = parse(); code >= 0) return code == 0 ? 0 : 2;
  if (const std::optional<int> code = commands.Run()) return *code;
  const auto address = ParseAddress(listen), metrics_address = ParseAddress(metrics_listen);
  for (const auto* parsed : {&address, &metrics_address}) {
    if (parsed->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(parsed->status().message()).c_str());
    return 2;
  }
  if (!backup_every.empty() && (!absl::ParseDuration(backup_every, &options.backup_every) ||
                                options.backup_every < absl::Seconds(1))) {
    std::fprintf(stderr, "--backup-every: wanted a time of at least 1s, as 10m or 1h, found '%s'\n",
                 backup_every.c_str());
    return 2;
  }
  if (!restore.empty()) {
    const absl::Status status = Restore(options.state_directory, restore);
    if (!status.ok()) LogError("restore_failed", {{"error", status.message()}});
    return status.ok() ? 0 : 1;
  }
  options.listen = *address;
  own.key_readers = ReadersWhere(std::getenv("KUBERNETES_SERVICE_HOST"));
  if (!own.key_path.empty()) options.certificate = own;
  options.config_directory = ConfigDirectory(std::getenv("XDG_CONFIG_HOME"), std::getenv("HOME"));
  const absl::Status status = Serve(options, *metrics_address);
  LogError("controller_failed", {{"error", status.message()}});
  return 1;
}

}  // namespace
}  // namespace trainyard::controller

int main(int argc, char** argv) { return trainyard::controller::Main(argc, argv); }
