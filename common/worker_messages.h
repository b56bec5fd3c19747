// The messages between a worker and the controller, as both sides hold them.
// proto/trainyard/v1/worker.proto documents their fields, and common/worker_fields.h declares them.
// What only one side knows is in worker/daemon/reports.h and controller/workers/messages.h.

#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rank_config.h"
#include "common/rank_records.h"

namespace trainyard {

struct RankId {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  auto operator<=>(const RankId&) const = default;
  std::string Name() const { return absl::StrCat(job_id, ".", epoch, ".", rank); }
};

// The enums are numbered as on the wire. The store writes these numbers, too.
enum class RankState : uint8_t { kStarting = 1, kReady = 2, kExited = 3 };

enum class ExitCause : uint8_t {
  kNone = 0,  // The rank has not ended.
  kCompleted = 1,
  kStopped = 2,
  // The user can repair it: data, paths, checkpoints, the config, or too much memory wanted.
  kBadInput = 3,
  kNotFinite = 4,
  kPeerLost = 5,
  kDeviceError = 6,
  kSignal = 7,  // Reported about a trainer, never by it; so is kHung.
  kOther = 8,
  kHung = 9,
  // The rank's host does not have the checkpoint directory as the job left it, or could not start
  // the rank.
  kStorage = 10,
  kSuperseded = 11,  // A later attempt has begun in the checkpoint directory.
};

enum class StopMode : uint8_t { kCheckpoint = 1, kKill = 2 };

struct RankExit {
  ExitCause cause = ExitCause::kNone;
  int signal = 0;     // 0: no signal ended the process.
  int exit_code = 0;  // Set if signal is 0.
  std::string message = {};
};

struct RankStatus : RankId, RankExit {  // The exit is set with kExited.
  uint32_t device = 0;
  RankState state = RankState::kStarting;
  std::optional<StartRecord> resumed = {};  // Set with kReady. The controller takes rank 0's alone.
};

struct CheckpointReport {
  RankId id;
  CheckpointRecord checkpoint;
  absl::Time time;  // Of the commit.
};

struct LogRecord {
  absl::Time time;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  std::string text;
};
struct LogReport {
  std::string job_id;
  std::vector<LogRecord> lines;
};

// A key of the rendezvous among an attempt's ranks. A worker that asks for it gives no value.
struct RendezvousValue {
  std::string job_id;
  uint64_t epoch = 0;
  std::string key;
  std::string value = {};
};

// Where a rank runs.
struct RankPlacement {
  uint32_t rank = 0;
  uint32_t device = 0;
  std::string worker_id = {};
};

struct StartOrder : AttemptFacts {   // Its roots narrow the daemon's own; empty: they do not.
  std::vector<RankPlacement> ranks;  // The ranks on this worker.
  std::string job_config;  // The trainers' `job`, as JSON. Resolved unless an old job is not.
  // Not sent. The submitted spec, of which the controller makes what the last release reads.
  std::string submitted = {};
};

struct StopOrder {
  std::string job_id;
  uint64_t epoch = 0;  // This epoch and all earlier ones stop.
  StopMode mode = StopMode::kKill;
};

struct PeakRate {
  std::string dtype;      // "f32", "bf16", "f64", "fp8"
  double flops = 0;       // Per second.
  bool measured = false;  // False: a data sheet's.
};

struct Gpu {
  uint32_t index = 0;                   // The index that NVML uses.
  std::string uuid = {};                // "GPU-...".
  std::string driver_version = {};      // "580.65.06".
  std::string compute_capability = {};  // "9.0".
};

// What one rank runs on: a share of the machine's cores, or a GPU.
struct Device {
  uint32_t index = 0;
  std::string model = {};            // "cpu (2 threads, AMD EPYC 9354)", "NVIDIA H200".
  uint64_t memory_bytes = 0;         // The device's share; for a GPU its own memory.
  uint32_t threads = 0;              // Threads of a rank on the device.
  std::vector<PeakRate> peaks = {};  // Empty: unknown.
  std::optional<Gpu> gpu = {};       // Absent: a CPU rank.
  // Not sent. Of a GPU: its share of the machine's memory.
  uint64_t host_memory_bytes = 0;
  // Not sent. Only this device's ranks run on these processors; empty: on any.
  std::vector<int> processors = {};
};

}  // namespace trainyard
