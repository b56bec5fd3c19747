// The devices that a daemon offers: CPU ranks, each with a share of the machine's cores and memory,
// and the matrix rate that such a share reaches.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

struct Device {
  uint32_t index = 0;
  std::string model;          // "cpu (2 threads, AMD EPYC 9354)".
  uint64_t memory_bytes = 0;  // Its share.
  uint32_t threads = 0;
  std::vector<int> processors = {};          // That are its alone; empty: it runs on any.
  std::map<std::string, double> peak_flops;  // Per second by dtype: f32, bf16, f64. Empty: unknown.
};

struct DeviceOptions {
  uint32_t devices = 1;
  double cores = 0;                      // That they share, and memory with them; 0: all usable.
  std::string trainer;                   // Asked for the rates: `trainer --measure --threads N`.
  std::vector<std::string> environment;  // The trainer's.
  std::string best_rates;                // File of the best rates so far; no other daemon's.
};

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
