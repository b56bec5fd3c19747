#include "worker/daemon/devices.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/host_memory.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/daemon/processes.h"

namespace trainyard {
namespace {

using nlohmann::json;

using Rates = std::map<std::string, double>;  // FLOP/s by dtype.

constexpr int kRatesVersion = 1;  // The version of the file of rates.
constexpr absl::Duration kMeasureTimeout = absl::Seconds(60);
constexpr uint32_t kMaxDevices = 1024;

// Returns the processors that this process may use. Empty: the system does not tell.
std::vector<int> UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> usable;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return usable;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(size_t(i), &set)) usable.push_back(i);
  }
  return usable;
}

std::string CpuModel() {
  const auto info = ReadFile("/proc/cpuinfo");
  if (!info.ok()) return "unknown";
  for (const absl::string_view line : absl::StrSplit(*info, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (parts.size() == 2 && absl::StartsWith(parts[0], "model name")) return std::string(parts[1]);
  }
  return "unknown";
}

Rates ParseRates(const json& object) {
  Rates rates;
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    const auto it = object.is_object() ? object.find(dtype) : object.end();
    if (it != object.end() && it->is_number() && it->get<double>() > 0) rates[dtype] = *it;
  }
  return rates;
}

Rates Measure(const DeviceOptions& options, const CpuShare& share) {
  // If ranks share cores, the workers of one machine measure in turn. At the same time, each would
  // measure only its share, and the share would then be subtracted again.
  FileDescriptor turn;
  if (share.of_threads < 1) {
    turn = FileDescriptor(::open(options.trainer.c_str(), O_RDONLY | O_CLOEXEC));
    ::flock(turn.get(), LOCK_EX);
  }
  const auto output = RunForOutput(
      {.arguments = {options.trainer, "--measure", "--threads", absl::StrCat(share.threads)},
       .environment = options.environment},
      kMeasureTimeout);
  if (!output.ok()) {
    LogWarning("measure_failed", {{"error", output.status().message()}});
    return {};
  }
  const Rates rates = ParseRates(ParseJson<json>(*output));
  if (rates.empty()) {
    LogWarning("measure_failed", {{"found", *output}, {"wanted", "{\"f32\": flops, ...}"}});
  }
  return rates;
}

// Returns the content of the file. A file of another format is replaced.
json ReadBest(const std::string& path) {
  const auto text = ReadFile(path, 1 << 20);
  json best = text.ok() ? ParseJson<json>(*text) : json();
  if (best.is_object() && best.value("version", json()) == kRatesVersion &&
      best.contains("rates") && best["rates"].is_object()) {
    return best;
  }
  return {{"version", kRatesVersion}, {"rates", json::object()}};
}

// Measures at every start, because this may be the first start on a machine that is otherwise idle.
// The best rate so far counts. Each model and share of a processor has its own rate.
Rates BestRates(const DeviceOptions& options, const CpuShare& share, uint32_t cores) {
  json best = ReadBest(options.best_rates);
  json& kept =
      best["rates"][absl::StrCat(CpuModel(), "; ", share.threads, " of ", cores, " cores")];
  const Rates before = ParseRates(kept);
  Rates rates = before;
  for (const auto& [dtype, rate] : Measure(options, share)) {
    rates[dtype] = std::max(rates[dtype], rate);
  }
  if (rates == before) return rates;
  kept = rates;
  if (const auto status = WriteFileAtomic(options.best_rates, JsonText(best, 2) + "\n");
      !status.ok()) {
    LogWarning("measure_not_kept", {{"error", status.message()}});
  }
  return rates;
}

}  // namespace

CpuShare ShareOf(double cores, uint32_t devices) {
  const double each = cores / devices;
  const uint32_t threads = uint32_t(std::max(1.0, each));
  return {threads, std::min(1.0, each / threads)};
}

uint64_t ShareOfMemory(double cores, uint32_t devices) {
  const double usable = double(std::max<size_t>(1, UsableProcessors().size()));
  return uint64_t(double(HostMemoryBytes()) * cores / usable) / devices;
}

std::vector<std::vector<int>> DivideProcessors(const std::vector<int>& usable, uint32_t devices) {
  std::vector<std::vector<int>> divided(devices);
  if (usable.size() < devices) return divided;
  for (size_t i = 0; i < devices; ++i) {
    divided[i].assign(usable.begin() + int64_t(usable.size() * i / devices),
                      usable.begin() + int64_t(usable.size() * (i + 1) / devices));
  }
  return divided;
}

absl::StatusOr<double> SharedCores(double cores) {
  const size_t usable = std::max<size_t>(1, UsableProcessors().size());
  if (cores >= 0 && cores <= double(usable)) return cores > 0 ? cores : double(usable);
  return absl::InvalidArgumentError(absl::StrCat(
      "--cores ", cores, " is not above 0 and at most this machine's ", usable, " usable cores"));
}

absl::StatusOr<std::vector<Device>> CpuDevices(const DeviceOptions& options) {
  const std::vector<int> usable = UsableProcessors();
  const uint32_t cores = uint32_t(std::max<size_t>(1, usable.size()));
  if (options.devices == 0 || options.devices > kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", options.devices, " is not between 1 and ", kMaxDevices));
  }
  ASSIGN_OR_RETURN(const double shared_cores, SharedCores(options.cores));
  const CpuShare share = ShareOf(shared_cores, options.devices);
  Device device;
  device.model = absl::StrCat("cpu (", share.threads, share.threads == 1 ? " thread" : " threads");
  if (share.of_threads < 1) absl::StrAppend(&device.model, " on ", share.of_threads, " cores");
  absl::StrAppend(&device.model, ", ", CpuModel(), ")");
  device.memory_bytes = ShareOfMemory(shared_cores, options.devices);
  device.threads = share.threads;
  for (const auto& [dtype, rate] : BestRates(options, share, cores)) {
    device.peaks.push_back({dtype, rate * share.of_threads, /*measured=*/true});
  }
  std::vector<Device> devices(options.devices, device);
  for (uint32_t i = 0; i < options.devices; ++i) devices[i].index = i;
  // Daemons on one machine do not know which processors the others use.
  if (shared_cores < cores) return devices;
  const auto processors = DivideProcessors(usable, options.devices);
  for (Device& device : devices) device.processors = processors[device.index];
  return devices;
}

}  // namespace trainyard
