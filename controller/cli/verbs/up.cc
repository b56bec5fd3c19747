// trainyard up: the whole service on this machine, in the foreground.

#include <filesystem>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/cli/errors.h"
#include "controller/cli/local_service.h"
#include "controller/cli/verbs/verbs.h"

namespace trainyard::cli {
namespace {

constexpr uint64_t kMaxPatienceSeconds = 7 * 24 * 3600;

absl::StatusOr<int> Size(const Arguments& arguments, const std::string& name, uint64_t max) {
  const uint64_t size = arguments.Number(name);
  if (size == 0 || size > max) {
    return UsageError(absl::StrCat(name, ": wanted 1 to ", max, ", found ", size));
  }
  return int(size);
}

absl::Status Run(const Context& context) {
  LocalServiceOptions options;
  const auto workers = Size(context.arguments, "--workers", 64);
  const auto devices = Size(context.arguments, "--devices-per-worker", 256);
  if (!workers.ok()) return workers.status();
  if (!devices.ok()) return devices.status();
  if (context.arguments.Has("--patience")) {
    const auto patience = Size(context.arguments, "--patience", kMaxPatienceSeconds);
    if (!patience.ok()) return patience.status();
    options.patience_seconds = uint64_t(*patience);
  }
  options.workers = *workers;
  options.devices_per_worker = *devices;
  if (context.arguments.Text("--state").empty()) {
    return UsageError("--state: wanted a directory, found ''");
  }
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error) return ErrnoStatus(error.value(), "find", "the current directory");
  options.state = (here / context.arguments.Text("--state")).lexically_normal();
  options.listen = context.arguments.Text("--listen");
  options.metrics_listen = context.arguments.Text("--metrics-listen");
  options.binary_directory = context.surroundings.binary_directory;
  options.roots = {here, options.state};
  LocalService service(options, context.output);
  return service.Run();
}

}  // namespace

Verb UpVerb() {
  return {.name = "up",
          .summary = "runs a controller and workers on this machine, in the foreground",
          .positionals = {},
          .options = {NumberOption("--workers", "N", "worker daemons", "1"),
                      NumberOption("--devices-per-worker", "M",
                                   "CPU ranks of each; the cores are divided among all", "1"),
                      TextOption("--state", "DIR", "where everything is kept; reused if it exists",
                                 ".trainyard"),
                      TextOption("--listen", "ADDR", "where the API is served; port 0: a free one",
                                 "127.0.0.1:7070"),
                      TextOption("--metrics-listen", "ADDR",
                                 "where the controller's metrics are; port 0: a free one",
                                 "127.0.0.1:7071"),
                      NumberOption("--patience", "SECONDS",
                                   "how long a rank may go without progress within a step before "
                                   "it is ended; default: trainyard-worker's")},
          .offers = kQuiet,
          .examples = {"trainyard up --workers 2",
                       "trainyard up --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0"},
          .run = Run};
}

}  // namespace trainyard::cli
