// The GPUs that a daemon offers: those of NVML that this build has kernels for.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/nvml_adapter.h"

namespace trainyard {

struct GpuOptions {
  double cores = 0;  // That their ranks share; 0: all usable.
  // CUDA_VISIBLE_DEVICES, by which schedulers divide a machine; absent: all GPUs are this daemon's.
  std::optional<std::string> visible = {};
  std::string cuda_version;  // Of the toolkit built with; "none": this build has no kernels.
  std::string library = kNvmlLibrary;
  // With NVML, which takes seconds a GPU whose driver starts, and for ever where one is stuck.
  absl::Duration patience = absl::Minutes(1);
};

// In the order of NVML, or of `visible`; each is logged, with its reason if it is not offered.
// Errors: NOT_FOUND without a driver; FAILED_PRECONDITION for a driver that is too old, a build
// without CUDA, or where no GPU is left; DEADLINE_EXCEEDED where NVML does not answer: the thread
// that asks it is left behind.
absl::StatusOr<std::vector<Device>> GpuDevices(const GpuOptions& options);

}  // namespace trainyard
