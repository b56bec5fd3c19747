// NVIDIA's management library, loaded at run time: which GPUs there are, and how they fare. It
// talks to the driver without a CUDA context, so a daemon that asks it survives a GPU's fault. The
// one file that knows NVML's ABI is nvml_adapter.cc.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/channel/messages.h"

namespace trainyard {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";  // The driver brings it.

struct GpuIdentity {
  uint32_t index = 0;     // NVML's, in the order of the PCI bus.
  std::string name = {};  // "NVIDIA H100 80GB HBM3".
  std::string uuid = {};  // "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5".
  int major = 0;          // Compute capability.
  int minor = 0;
  bool mig = false;           // Divided into MIG instances.
  uint64_t memory_bytes = 0;  // Without what the driver keeps for itself.
};

// What a GPU's throttle_reasons may be: bit i + 1 of NVML's, whose first is that it is idle.
inline constexpr const char* kGpuThrottleReasons[] = {"applications_clocks_setting",
                                                      "sw_power_cap",
                                                      "hw_slowdown",
                                                      "sync_boost",
                                                      "sw_thermal_slowdown",
                                                      "hw_thermal_slowdown",
                                                      "hw_power_brake_slowdown"};

// The driver's number for what went wrong: 79 is a GPU that fell off the bus.
struct GpuXid {
  uint32_t index = 0;  // Of the GPU.
  uint64_t xid = 0;
};

// Thread-safe but for XIDs, as NVML is. A call may block for seconds where a GPU is in trouble.
class Nvml {
 public:
  // Loads `library` for kernels of `cuda_version` ("13.0.48"). Errors: NOT_FOUND without a driver;
  // FAILED_PRECONDITION for one that is too old, or not all there.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library,
                                                    const std::string& cuda_version);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& driver_version() const { return driver_version_; }  // "580.65.06".
  absl::StatusOr<uint32_t> Count() const;

  // Errors of these: UNAVAILABLE for a GPU that fell off the bus or needs a reset.
  absl::StatusOr<GpuIdentity> Identify(uint32_t index) const;
  absl::StatusOr<channel::GpuReading> Read(uint32_t index) const;

  // From now on the XID errors of this GPU are kept.
  absl::Status WatchXids(uint32_t index);
  // The next one that is kept; nothing: there is none. Does not wait for one.
  absl::StatusOr<std::optional<GpuXid>> NextXid();

 private:
  struct Functions;

  Nvml();
  absl::Status CheckDriver(const std::string& cuda_version);
  absl::Status Error(int result, absl::string_view call) const;

  void* library_ = nullptr;
  std::unique_ptr<Functions> nvml_;
  bool initialized_ = false;
  void* xids_ = nullptr;               // The event set, once a GPU is watched.
  std::map<void*, uint32_t> watched_;  // By handle: a GPU that is gone cannot say which it was.
  std::string driver_version_;
};

}  // namespace trainyard
