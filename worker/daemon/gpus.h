// The GPUs that a daemon offers: those that NVML lists and this build has kernels for.

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
  double cores = 0;  // The cores that the GPUs' ranks share; 0: all usable.
  // CUDA_VISIBLE_DEVICES, by which schedulers divide a machine. Absent: all GPUs belong to this
  // daemon.
  std::optional<std::string> visible = {};
  // The version of the toolkit that built this program; "none": this build has no kernels.
  std::string cuda_version;
  std::string library = kNvmlLibrary;
  // How long to wait for NVML. A GPU whose driver starts takes seconds, and a stuck GPU never
  // answers.
  absl::Duration patience = absl::Minutes(1);
};

// Returns the GPUs in the order of NVML, or of `visible`. Logs each GPU, with the reason if it is
// not offered. NOT_FOUND: there is no driver. FAILED_PRECONDITION: the driver is too old, this
// build has no CUDA, or no GPU is left. DEADLINE_EXCEEDED: NVML does not answer; the thread that
// waits for it is abandoned.
absl::StatusOr<std::vector<Device>> GpuDevices(const GpuOptions& options);

}  // namespace trainyard
