// NVIDIA's management library, loaded at run time. It lists the GPUs and reads their state. It
// talks to the driver without a CUDA context, so a daemon that uses it survives a GPU's fault.
// nvml_adapter.cc is the only file that knows NVML's ABI.

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

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";  // Comes with the driver.

struct GpuIdentity {
  uint32_t index = 0;     // NVML's index, in the order of the PCI bus.
  std::string name = {};  // "NVIDIA H100 80GB HBM3".
  std::string uuid = {};  // "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5".
  int major = 0;          // Compute capability.
  int minor = 0;
  bool mig = false;           // The GPU is divided into MIG instances.
  uint64_t memory_bytes = 0;  // Without the driver's own part.
};

// The values of a GPU's throttle_reasons, one for each bit of NVML's mask from bit 1 on. Bit 0 says
// that the GPU is idle.
inline constexpr const char* kGpuThrottleReasons[] = {"applications_clocks_setting",
                                                      "sw_power_cap",
                                                      "hw_slowdown",
                                                      "sync_boost",
                                                      "sw_thermal_slowdown",
                                                      "hw_thermal_slowdown",
                                                      "hw_power_brake_slowdown"};

// An error number of the driver: 79 means that the GPU fell off the bus.
struct GpuXid {
  uint32_t index = 0;  // The GPU's index.
  uint64_t xid = 0;
};

// Thread-safe except for the XID functions, as NVML is. A call may block for seconds if a GPU is in
// trouble.
class Nvml {
 public:
  // Loads `library` for kernels of `cuda_version` ("13.0.48"). NOT_FOUND: there is no driver.
  // FAILED_PRECONDITION: the driver is too old or incomplete.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library,
                                                    const std::string& cuda_version);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& driver_version() const { return driver_version_; }  // "580.65.06".
  absl::StatusOr<uint32_t> Count() const;

  // UNAVAILABLE: the GPU fell off the bus or needs a reset.
  absl::StatusOr<GpuIdentity> Identify(uint32_t index) const;
  absl::StatusOr<GpuReading> Read(uint32_t index) const;

  // Keeps the XID errors of this GPU from now on.
  absl::Status WatchXids(uint32_t index);
  // Returns the next XID error. Absent: there is none. Does not wait.
  absl::StatusOr<std::optional<GpuXid>> NextXid();

 private:
  struct Functions;

  Nvml();
  absl::Status CheckDriver(const std::string& cuda_version);
  absl::Status Error(int result, absl::string_view call) const;

  void* library_ = nullptr;
  std::unique_ptr<Functions> nvml_;
  bool initialized_ = false;
  void* xids_ = nullptr;               // The event set; null until a GPU is watched.
  std::map<void*, uint32_t> watched_;  // By handle, because a lost GPU cannot tell its index.
  std::string driver_version_;
};

}  // namespace trainyard
