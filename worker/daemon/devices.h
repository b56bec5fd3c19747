// The devices that a daemon offers. This file has the devices for CPU ranks, each with a share of
// the machine's cores and memory, and the measured rate of such a share. worker/daemon/gpus.h has
// the GPUs.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/worker_messages.h"

namespace trainyard {

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

// One device's share of the machine's memory. The share is in proportion to the cores, so that
// daemons on one machine together do not promise more than its memory.
uint64_t ShareOfMemory(double cores, uint32_t devices);

// Gives neighbouring processors to the same device, because they share caches. The lists are empty
// if there are fewer processors than devices.
std::vector<std::vector<int>> DivideProcessors(const std::vector<int>& usable, uint32_t devices);

// Measures the rates, which takes about 0.3 s. INVALID_ARGUMENT: a count is zero or more than the
// machine has. If a measurement fails, this is logged, and the rates stay as they were (at first
// unknown).
absl::StatusOr<std::vector<Device>> CpuDevices(const DeviceOptions& options);

}  // namespace trainyard
