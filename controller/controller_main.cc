// trainyard-controller: the service. Start with service/server.h.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/service/metrics_page_adapter.h"
#include "controller/service/server.h"

namespace trainyard::controller {
namespace {

// gRPC 1.51 accepts nothing more for good once it has run out of descriptors.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) LogWarning("descriptor_limit_not_raised");
}

sigset_t StopSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  return signals;
}

// Returns only if it cannot serve.
absl::Status Serve(const ServerOptions& options, const Address& metrics_listen) {
  // Blocked before any thread starts, so that only the wait below takes them.
  const sigset_t signals = StopSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  RETURN_IF_ERROR(CheckListen(metrics_listen, options.insecure));
  ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Start(options, RealClock()));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsPage> page,
                   MetricsPage::Serve(metrics_listen, server->registry()));
  const std::string ready =
      absl::StrCat("ready controller=", server->address().ToString(), " metrics=http://",
                   page->address().ToString(), "/metrics\n");
  std::fputs(ready.c_str(), stdout);
  std::fflush(stdout);
  LogInfo("ready", {{"controller", server->address().ToString()},
                    {"metrics", page->address().ToString()},
                    {"state", options.state_directory},
                    {"version", Version()},
                    {"revision", Revision()}});
  int signal = 0;
  ::sigwait(&signals, &signal);
  LogInfo("stopping", {{"signal", signal}});
  server.reset();
  LogInfo("stopped");
  // All is stored, and the metrics page would take two seconds to come down.
  ::_exit(0);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "The Trainyard controller: takes jobs over gRPC, keeps them, places them on workers.\n\n"
      "Prints one line `ready controller=HOST:PORT metrics=URL` when it serves. SIGTERM ends it; "
      "jobs go on running on their workers, and the next controller on the same state directory "
      "takes them over.");
  app.set_version_flag("--version", absl::StrCat(Version(), " (", Revision(), ")"));
  ServerOptions options;
  std::string listen = "127.0.0.1:7070", metrics_listen = "127.0.0.1:9464";
  app.add_option("--state", options.state_directory, "Directory of the store; one controller each")
      ->required();
  app.add_option("--listen", listen, "Address of the API; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--metrics-listen", metrics_listen, "Address of the Prometheus page")
      ->capture_default_str();
  app.add_flag("--insecure", options.insecure,
               "Allow addresses off loopback although there is no TLS");
  // The macro returns CLI11's own codes, of which there are many.
  const auto parse = [&]() -> int {
    CLI11_PARSE(app, argc, argv);
    return -1;
  };
  if (const int code = parse(); code >= 0) return code == 0 ? 0 : 2;
  const auto address = ParseAddress(listen), metrics_address = ParseAddress(metrics_listen);
  for (const auto* parsed : {&address, &metrics_address}) {
    if (parsed->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(parsed->status().message()).c_str());
    return 2;
  }
  options.listen = *address;
  const absl::Status status = Serve(options, *metrics_address);
  LogError("controller_failed", {{"error", status.message()}});
  return 1;
}

}  // namespace
}  // namespace trainyard::controller

int main(int argc, char** argv) { return trainyard::controller::Main(argc, argv); }
