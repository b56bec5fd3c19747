#include "worker/daemon/environment.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace trainyard {
namespace {

constexpr absl::string_view kNames[] = {"HOME",   "LANG", "LC_ALL", "LD_LIBRARY_PATH",
                                        "TMPDIR", "TZ"};
constexpr absl::string_view kLibraries = "LD_LIBRARY_PATH=";
// NCCL_* variables describe a site's networks, including the plugins that a cloud needs. The other
// three prefixes configure sanitizers. LD_LIBRARY_PATH finds CUDA and NCCL outside the loader's own
// directories. All of these come from the person who starts the worker. This person also chooses
// the trainer's program, so the variables give away nothing.
constexpr absl::string_view kPrefixes[] = {"NCCL_", "ASAN_", "UBSAN_", "TSAN_"};

bool Allowed(absl::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

// Removes relative and empty paths. The loader looks for these below the current directory, which
// is a root of jobs: a job could put a library there.
std::string WithoutRelative(absl::string_view paths) {
  return absl::StrJoin(
      absl::StrSplit(paths, absl::ByAnyChar(":;"),
                     [](absl::string_view path) { return absl::StartsWith(path, "/"); }),
      ":");
}

}  // namespace

std::vector<std::string> TrainerEnvironment(const char* const* environment) {
  std::vector<std::string> result;
  for (; *environment != nullptr; ++environment) {
    absl::string_view entry = *environment;
    if (!Allowed(entry.substr(0, entry.find('=')))) continue;
    if (absl::ConsumePrefix(&entry, kLibraries)) {
      result.push_back(absl::StrCat(kLibraries, WithoutRelative(entry)));
    } else {
      result.emplace_back(entry);
    }
  }
  // Threads that spin while they wait would take the cores of the machine's other ranks.
  result.push_back("OMP_WAIT_POLICY=passive");
  return result;
}

std::vector<std::string> DeviceEnvironment(const Device& device) {
  return {absl::StrCat("OMP_NUM_THREADS=", device.threads),
          absl::StrCat("CUDA_VISIBLE_DEVICES=", device.gpu ? device.gpu->uuid : "")};
}

}  // namespace trainyard
