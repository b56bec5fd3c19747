#include "worker/daemon/environment.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard {
namespace {

constexpr absl::string_view kNames[] = {"HOME",   "LANG", "LC_ALL", "LD_LIBRARY_PATH",
                                        "TMPDIR", "TZ"};
// Networks differ from site to site, and these are how NCCL and the sanitizers are told.
constexpr absl::string_view kPrefixes[] = {"NCCL_", "ASAN_", "UBSAN_", "TSAN_"};

bool Allowed(absl::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

}  // namespace

std::vector<std::string> TrainerEnvironment(const char* const* environment) {
  std::vector<std::string> result;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    if (Allowed(entry.substr(0, entry.find('=')))) result.emplace_back(entry);
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
