#include "worker/daemon/gpus.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/gpu_models.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// Code for sm_90a runs on this compute capability and no other.
constexpr int kMajor = 9, kMinor = 0;

// A GPU that NVML lists, and why it is not offered. Empty: it may be offered.
struct Candidate {
  GpuIdentity identity;
  std::string refused;
};

std::string Capability(const GpuIdentity& gpu) { return absl::StrCat(gpu.major, ".", gpu.minor); }

std::string WhyNot(const GpuIdentity& gpu) {
  if (gpu.mig) return "it is divided into MIG instances, which are not supported";
  if (gpu.major == kMajor && gpu.minor == kMinor) return "";
  return absl::StrCat("its compute capability is ", Capability(gpu),
                      "; this build's kernels are for ", kMajor, ".", kMinor, " (H100, H200)");
}

absl::StatusOr<std::vector<Candidate>> Candidates(const Nvml& nvml) {
  std::vector<Candidate> candidates;
  ASSIGN_OR_RETURN(const uint32_t count, nvml.Count());
  for (uint32_t i = 0; i < count; ++i) {
    const absl::StatusOr<GpuIdentity> gpu = nvml.Identify(i);
    candidates.push_back(gpu.ok() ? Candidate{*gpu, WhyNot(*gpu)}
                                  : Candidate{{.index = i}, std::string(gpu.status().message())});
  }
  return candidates;
}

// Reads the variable as CUDA does: numbers or prefixes of UUIDs, up to the first that names no GPU.
std::vector<Candidate> Visible(const std::vector<Candidate>& all, const std::string& variable) {
  std::vector<Candidate> visible;
  for (const absl::string_view word : absl::StrSplit(variable, ',')) {
    const std::string name(absl::StripAsciiWhitespace(word));
    uint32_t index = 0;
    const bool number = absl::SimpleAtoi(name, &index);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& candidate) {
      if (number) return candidate.identity.index == index;
      return name.size() > 4 && absl::StartsWith(candidate.identity.uuid, name);
    });
    if (found == all.end()) {
      if (!name.empty()) LogWarning("gpu_not_found", {{"CUDA_VISIBLE_DEVICES", name}});
      break;
    }
    visible.push_back(*found);
  }
  return visible;
}

absl::Status NothingLeft(const std::vector<Candidate>& all, const std::vector<Candidate>& visible) {
  std::string message = absl::StrCat("no GPU to offer: NVML has ", all.size());
  if (visible.size() < all.size()) {
    absl::StrAppend(&message, ", CUDA_VISIBLE_DEVICES leaves ", visible.size());
  }
  for (const Candidate& gpu : visible) {
    const std::string& name = gpu.identity.name;
    absl::StrAppend(&message, "; GPU ", gpu.identity.index, name.empty() ? "" : " ", name, ": ",
                    gpu.refused);
  }
  return absl::FailedPreconditionError(message);
}

Device ToDevice(const GpuIdentity& gpu, const std::string& driver_version) {
  Device device;
  device.model = gpu.name;
  device.memory_bytes = gpu.memory_bytes;
  device.gpu = Gpu{gpu.index, gpu.uuid, driver_version, Capability(gpu)};
  const GpuModel* const model = FindGpuModel(gpu.name);
  if (model == nullptr) return device;
  for (const auto& [dtype, flops] : model->peak_flops()) device.peaks.push_back({dtype, flops});
  return device;
}

void Log(const Device& device) {
  LogInfo("gpu", {{"device", device.index},
                  {"gpu", device.gpu->index},
                  {"model", device.model},
                  {"uuid", device.gpu->uuid},
                  {"memory_bytes", device.memory_bytes},
                  {"driver", device.gpu->driver_version},
                  {"peak", device.peaks.empty() ? "unknown, so there is no MFU" : "known"}});
}

absl::StatusOr<std::vector<Device>> Discover(const GpuOptions& options) {
  if (options.cuda_version == "none") {
    return absl::FailedPreconditionError(
        "this build has no kernels for GPUs, because no CUDA toolkit was found when it was built");
  }
  ASSIGN_OR_RETURN(const double cores, SharedCores(options.cores));
  ASSIGN_OR_RETURN(const auto nvml, Nvml::Open(options.library, options.cuda_version));
  ASSIGN_OR_RETURN(const std::vector<Candidate> all, Candidates(*nvml));
  const std::vector<Candidate> visible = options.visible ? Visible(all, *options.visible) : all;
  std::vector<Device> devices;
  for (const Candidate& candidate : visible) {
    if (candidate.refused.empty()) {
      devices.push_back(ToDevice(candidate.identity, nvml->driver_version()));
      devices.back().index = uint32_t(devices.size() - 1);
    } else {
      LogWarning("gpu_not_offered", {{"gpu", candidate.identity.index},
                                     {"model", candidate.identity.name},
                                     {"reason", candidate.refused}});
    }
  }
  if (devices.empty()) return NothingLeft(all, visible);
  const CpuShare share = ShareOf(cores, uint32_t(devices.size()));
  for (Device& device : devices) {
    device.threads = share.threads;
    device.host_memory_bytes = ShareOfMemory(cores, uint32_t(devices.size()));
    Log(device);
  }
  return devices;
}

}  // namespace

absl::StatusOr<std::vector<Device>> GpuDevices(const GpuOptions& options) {
  std::packaged_task<absl::StatusOr<std::vector<Device>>()> ask(
      [options] { return Discover(options); });
  auto answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  if (answer.wait_for(absl::ToChronoNanoseconds(options.patience)) != std::future_status::ready) {
    return absl::DeadlineExceededError(
        absl::StrCat("NVML does not answer: it was asked for the GPUs, and did not answer within ",
                     absl::FormatDuration(options.patience),
                     "; if a GPU is stuck, nvidia-smi does not answer either"));
  }
  return answer.get();
}

}  // namespace trainyard
