// What a rank says of its training. The training loop makes these records, the lines of the rank's
// socket carry them (worker/channel), and the daemon passes them on to the controller.
// common/worker_fields.h declares their fields.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/step_numbers.h"

namespace trainyard {

// A rank's calls of one operation among the ranks of one group.
struct CollectiveUse {
  std::string op;     // "all_gather"
  std::string group;  // The axes along which its ranks differ ("data"), or "everyone".
  uint64_t calls = 0;
  uint64_t bytes = 0;  // Sent by this rank.
  double seconds = 0;
};

// A GPU's state. A value that the GPU does not report is absent.
struct GpuReading {
  // 0 to 1: the share of time in which a kernel ran.
  std::optional<double> utilization = {};
  std::optional<double> memory_used_bytes = {};  // Used by all processes.
  std::optional<double> power_watts = {};
  std::optional<double> sm_clock_hertz = {};
  std::optional<double> temperature_celsius = {};
  std::vector<std::string> throttle_reasons = {};  // Why the clock is held down: "sw_power_cap".
  bool operator==(const GpuReading&) const = default;
};

struct GpuNumber {
  const char* name;   // Of the reading's field; the store's column is gpu_NAME.
  const char* shown;  // The field of v1::StepRecord is gpu_SHOWN, and TensorBoard's is gpu/SHOWN.
  std::optional<double> GpuReading::*value;
  double (*join)(double, double);  // Makes the number of a step from those of its ranks' GPUs.

  static double Lowest(double a, double b) { return std::min(a, b); }
  static double Highest(double a, double b) { return std::max(a, b); }
  static double Sum(double a, double b) { return a + b; }
};
inline constexpr std::array<GpuNumber, 5> kGpuNumbers = {{
    {"utilization", "utilization_ratio", &GpuReading::utilization, GpuNumber::Lowest},
    {"memory_used_bytes", "memory_used_bytes", &GpuReading::memory_used_bytes, GpuNumber::Sum},
    {"power_watts", "power_watts", &GpuReading::power_watts, GpuNumber::Sum},
    {"sm_clock_hertz", "sm_clock_hertz", &GpuReading::sm_clock_hertz, GpuNumber::Lowest},
    {"temperature_celsius", "temperature_celsius", &GpuReading::temperature_celsius,
     GpuNumber::Highest},
}};

// What the model wrote after a step.
struct GeneratedText {
  std::string prompt;
  std::string text;  // Without the prompt.
  bool operator==(const GeneratedText&) const = default;
};

// One optimizer step, as this rank measured it.
struct StepRecord : StepNumbers {
  uint64_t step = 0;                  // From 1.
  uint64_t tokens = 0;                // Of the global batch.
  double seconds = 0;                 // Of the slowest rank: docs/metrics.md.
  PhaseSeconds phases;                // This rank's; grad_sync includes the wait for the slowest.
  std::optional<double> peak_flops;   // Per second, all ranks together; absent: unknown.
  bool skipped = false;               // Not finite, twice: the update was not committed.
  double model_flops = 0;             // Of the whole global batch, by the convention "exact".
  uint64_t memory_bytes = 0;          // Device memory that this rank uses (Backend::MemoryInUse).
  uint64_t memory_planned_bytes = 0;  // Planned for tensors.
  std::vector<GeneratedText> generated = {};  // On rank 0, by prompt.
  // This rank's use since the previous step. Includes validation and checkpoint.
  std::vector<CollectiveUse> collectives = {};

  // The training loop leaves these alone.
  double time = 0;      // Unix seconds at the end of the step.
  GpuReading gpu = {};  // Of the rank's GPU, as read by the worker. Empty: a CPU rank, or not read.
  // Absent: the step is of this attempt. Otherwise it is of an earlier attempt, and rank 0 has read
  // its record from the checkpoint directory.
  std::optional<uint64_t> epoch = {};
};

struct CheckpointId {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// The checkpoint with the lowest validation loss, of those that exist.
struct BestCheckpoint {
  uint64_t epoch = 0;
  uint64_t step = 0;
  double validation_loss = 0;  // Of the state that the checkpoint has.
  bool operator==(const BestCheckpoint&) const = default;
};

// A checkpoint was committed, or saving it failed. Sent by rank 0.
struct CheckpointRecord {
  uint64_t step = 0;
  std::string path;
  uint64_t size_bytes = 0;
  double seconds = 0;
  // The newest loadable checkpoints after retention, newest first, at most 64. Empty: not known.
  std::vector<CheckpointId> retained = {};
  // Why saving failed. If set, only the step is set besides.
  std::optional<std::string> error = {};
  std::optional<BestCheckpoint> best = {};  // Only with checkpoint.keep_best.
};

// A checkpoint of the job's directory that the next attempt may load.
struct LoadableCheckpoint {
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string path;
  uint64_t size_bytes = 0;
};

// The step from which an attempt of the job continued; 0: from the beginning.
struct AttemptStart {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// The rank has loaded everything and begins its first step. `step` is the same on every rank; rank
// 0 alone sets the rest.
struct StartRecord {
  uint64_t step = 0;                              // Of the checkpoint that was loaded; 0: none.
  std::vector<std::string> refused = {};          // Why newer checkpoints could not be loaded.
  std::vector<LoadableCheckpoint> loadable = {};  // Newest first, at most 64.
  // The attempts that this one continues and that the controller may not know of, oldest first.
  std::vector<AttemptStart> earlier_starts = {};
  std::optional<BestCheckpoint> best = {};  // Only with checkpoint.keep_best.
};

}  // namespace trainyard
