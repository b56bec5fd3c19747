// The devices that a daemon offers. This file has the devices for CPU ranks, each with a share of
// the machine's cores and memory, and the measured rate of such a share. worker/daemon/gpus.h has
// the GPUs.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

struct Gpu {
  uint32_t index = 0;                   // NVML's index.
  std::string uuid = {};                // "GPU-...".
  std::string driver_version = {};      // "580.65.06".
  std::string compute_capability = {};  // "9.0".
};

struct Device {
  uint32_t index = 0;
  std::string model = {};            // "cpu (2 threads, AMD EPYC 9354)", "NVIDIA H200".
  uint64_t memory_bytes = 0;         // The device's share; for a GPU its own memory.
  uint32_t threads = 0;              // Threads of a rank on the device.
  std::vector<int> processors = {};  // Only this device's ranks run on them; empty: any.
  // Operations per second by dtype (f32, bf16, f64, fp8): measured, or from a GPU's data sheet.
  // Empty: unknown.
  std::map<std::string, double> peak_flops = {};
  std::optional<Gpu> gpu = {};  // Absent: a CPU rank.
};

struct DeviceOptions {
  uint32_t devices = 1;
  // The cores that the devices share, and memory in proportion; 0: all usable cores.
  double cores = 0;
  std::string trainer;                   // Measures rates: `trainer --measure --threads N`.
  std::vector<std::string> environment;  // The trainer's.
  // File of the best rates so far. Each daemon needs its own.
  std::string best_rates;
};

// Returns how many cores the ranks share: `cores`, or all usable cores if `cores` is 0.
// INVALID_ARGUMENT: the machine has fewer.
absl::StatusOr<double> SharedCores(double cores);

// One device's share if `devices` devices share the cores. A device has at least one thread, so
// several devices may have to take turns on one core.
struct CpuShare {
  uint32_t threads = 1;
  // The factor on the rate of this many threads. Below 1 if there are more devices than cores.
  double of_threads = 1;
};
CpuShare ShareOf(double cores, uint32_t devices);

// Gives neighbouring processors to the same device, because they share caches. The lists are empty
// if there are fewer processors than devices.
std::vector<std::vector<int>> DivideProcessors(const std::vector<int>& usable, uint32_t devices);

// Measures the rates, which takes about 0.3 s. INVALID_ARGUMENT: a count is zero or more than the
// machine has. If a measurement fails, this is logged, and the rates stay as they were (at first
// unknown).
absl::StatusOr<std::vector<Device>> CpuDevices(const DeviceOptions& options);

}  // namespace trainyard
