// The devices that a daemon offers. Here: CPU ranks, each with a share of the machine's cores and
// memory, and the matrix rate that such a share reaches. worker/daemon/gpus.h has the GPUs.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

struct Gpu {
  uint32_t index = 0;                   // NVML's.
  std::string uuid = {};                // "GPU-...".
  std::string driver_version = {};      // "580.65.06".
  std::string compute_capability = {};  // "9.0".
};

struct Device {
  uint32_t index = 0;
  std::string model = {};            // "cpu (2 threads, AMD EPYC 9354)", "NVIDIA H200".
  uint64_t memory_bytes = 0;         // Its share; a GPU's own.
  uint32_t threads = 0;              // Of a rank on it.
  std::vector<int> processors = {};  // That are its alone; empty: it runs on any.
  // Per second by dtype (f32, bf16, f64, fp8): measured, and a GPU's from its data sheet. Empty:
  // unknown.
  std::map<std::string, double> peak_flops = {};
  std::optional<Gpu> gpu = {};  // Absent: a CPU rank.
};

struct DeviceOptions {
  uint32_t devices = 1;
  double cores = 0;                      // That they share, and memory with them; 0: all usable.
  std::string trainer;                   // Asked for the rates: `trainer --measure --threads N`.
  std::vector<std::string> environment;  // The trainer's.
  std::string best_rates;                // File of the best rates so far; no other daemon's.
};

// How many cores the ranks share: `cores`, or all usable where it is 0. INVALID_ARGUMENT beyond
// those of the machine.
absl::StatusOr<double> SharedCores(double cores);

// What is a device's when so many share the cores: at least one thread, which several then have to
// run on one core in turn.
struct CpuShare {
  uint32_t threads = 1;
  double of_threads = 1;  // Of so many threads' rate; below 1 where there are more than cores.
};
CpuShare ShareOf(double cores, uint32_t devices);

// Neighbours stay together, because they share caches. Empty lists where there is not one for each.
std::vector<std::vector<int>> DivideProcessors(const std::vector<int>& usable, uint32_t devices);

// Takes about 0.3 s, for the measurement. INVALID_ARGUMENT for counts of zero or beyond the
// machine. A measurement that fails is logged, and leaves the rates as they were: at first unknown.
absl::StatusOr<std::vector<Device>> CpuDevices(const DeviceOptions& options);

}  // namespace trainyard
