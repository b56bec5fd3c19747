// How a rank's supervisor starts its trainer: its environment, and what the trainer may open.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/roots.h"
#include "worker/daemon/environment.h"
#include "worker/daemon/rank.h"
#include "worker/daemon/rank_config.h"

namespace trainyard {
namespace {

// Returns where the trainer would make a directory of its job. Absent: the directory exists, or
// would be hidden. A relative path is searched below each root, and made below the first.
std::optional<std::string> MissingBelow(const std::vector<std::string>& roots,
                                        const std::string& path,
                                        const std::vector<std::string>& hidden) {
  const bool relative = path.empty() || path[0] != '/';
  const auto in = [&](const std::string& root) {
    return relative ? absl::StrCat(root, "/", path) : path;
  };
  for (const std::string& root : roots) {
    if (Exists(in(root))) return std::nullopt;
  }
  const std::string missing = WithoutLinks(in(roots[0]));
  for (const std::string& secret : hidden) {
    if (MayLieBelow(missing, secret)) return std::nullopt;
  }
  return missing;
}

std::optional<Sandbox> SandboxFor(const DaemonOptions& options, const RankDirectory& directory,
                                  const StartOrder& order) {
  if (!options.sandbox) return std::nullopt;
  Sandbox sandbox{.user = options.sandbox->user,
                  .writable = order.roots,
                  .readable = {directory.path()},
                  .landlock = options.sandbox->landlock};
  // Devices and shared memory, the names of the process's own threads, and NVIDIA's sharing
  // service. The rest of /proc is not writable, because a rank that is root could change the
  // kernel's settings.
  for (const char* path : {"/dev", "/proc/self/task", "/tmp/nvidia-mps"}) {
    sandbox.writable.push_back(path);
  }
  sandbox.writable.push_back(directory.File("trainer"));
  for (const std::string& path : options.sandbox->hidden) {
    sandbox.hidden.push_back(WithoutLinks(path));
  }
  // A job whose namespace has fewer roots than the worker does not see the other roots.
  for (const std::string& root : options.roots) {
    const auto holds = [&](const std::string& own) { return MayLieBelow(root, own); };
    const bool own = std::any_of(order.roots.begin(), order.roots.end(), holds);
    if (!own && root != "/") sandbox.hidden.push_back(root);
  }
  // The programs and their libraries may lie below another job's root.
  const std::filesystem::path programs(WithoutLinks(options.trainer));
  sandbox.readable.push_back(programs.parent_path().string());
  sandbox.readable.push_back((programs.parent_path().parent_path() / "lib").string());
  for (const std::string& entry : options.environment) {
    absl::string_view paths = entry;
    if (!absl::ConsumePrefix(&paths, "LD_LIBRARY_PATH=")) continue;
    for (const absl::string_view path : absl::StrSplit(paths, ':', absl::SkipEmpty())) {
      sandbox.readable.push_back(WithoutLinks(std::string(path)));
    }
  }
  for (const std::string& path : DirectoriesOf(order)) {
    if (const auto missing = MissingBelow(order.roots, path, sandbox.hidden)) {
      sandbox.made.push_back(*missing);
    }
  }
  return sandbox;
}

}  // namespace

Launch LaunchOf(const DaemonOptions& options, uint32_t device, const RankDirectory& directory,
                const StartOrder& order) {
  std::vector<std::string> environment = options.environment;
  for (std::string& entry : DeviceEnvironment(options.devices[device])) {
    environment.push_back(std::move(entry));
  }
  environment.push_back(RankDirectory::Marker(directory.path()));
  return {.trainer = options.trainer,
          .working_directory = options.roots[0],
          .environment = std::move(environment),
          .device = device,
          .log_file_bytes = options.log_file_bytes,
          .log_files = options.log_files,
          .umask = options.umask,
          .sandbox = SandboxFor(options, directory, order)};
}

}  // namespace trainyard
