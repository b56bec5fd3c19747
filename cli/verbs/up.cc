// trainyard up: runs the whole service on this machine, in the foreground.

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "cli/local_service.h"
#include "cli/verbs/verbs.h"
#include "common/files.h"
#include "common/net/address.h"

namespace trainyard::cli {
namespace {

constexpr uint64_t kMaxPatienceSeconds = 7 * 24 * 3600;

absl::Status RunUp(const Context& context) {
  LocalServiceOptions options;
  options.workers = int(context.arguments.Number("--workers"));
  if (context.arguments.Has("--devices-per-worker")) {
    options.devices_per_worker = int(context.arguments.Number("--devices-per-worker"));
  }
  if (context.arguments.Has("--patience")) {
    options.patience_seconds = context.arguments.Number("--patience");
  }
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
  for (const std::string& root : context.arguments.List("--root")) {
    // The workers know a root by the same path, without links.
    const std::filesystem::path canonical = std::filesystem::canonical(here / root, error);
    if (error || !std::filesystem::is_directory(canonical)) {
      return UsageError(absl::StrCat("--root: wanted a directory, found '", root, "'"));
    }
    options.roots.push_back(canonical);
  }
  LocalService service(options, context.output);
  return service.Run();
}

}  // namespace

Verb UpVerb() {
  return {
      .name = "up",
      .summary = "runs a controller and workers on this machine, in the foreground",
      .positionals = {},
      .options =
          {NumberOption("--workers", "N", "worker daemons", "1", {1, 64}),
           NumberOption(
               "--devices-per-worker", "M",
               "CPU ranks of each worker; cores and memory are divided among all. Default: a "
               "single worker offers the machine's GPUs; without GPUs, or with several workers, 1",
               "", {1, 256}),
           TextOption("--state", "DIR", "directory for all files; reused if it exists",
                      ".trainyard"),
           ListOption("--root", "DIR",
                      "paths of specs may lie below this directory, too; may be repeated. Such as "
                      "~/.cache/huggingface"),
           TextOption("--listen", "ADDR", "address of the API; port 0 picks a free one",
                      kDefaultController),
           TextOption("--metrics-listen", "ADDR",
                      "address of the controller's metrics; port 0 picks a free one",
                      "127.0.0.1:7071"),
           NumberOption("--patience", "SECONDS",
                        "how long a rank may go without progress within a step before "
                        "it is ended; default: trainyard-worker's",
                        "", {1, kMaxPatienceSeconds})},
      .offers = kQuiet,
      .examples = {"trainyard up --workers 2",
                   "trainyard up --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0"},
      .run = RunUp};
}

}  // namespace trainyard::cli
