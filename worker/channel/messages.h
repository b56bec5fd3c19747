// The messages between a trainer and its worker daemon over a local socket (docs/formats.md,
// section "Local socket"). Here are the structs; the .cc file has their JSON. client.h and server.h
// are the two ends.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/step_numbers.h"

namespace trainyard::channel {

constexpr int kVersion = 1;
constexpr size_t kMaxLineBytes = 128 << 10;

struct Hello {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  int64_t pid = 0;
};

// A checkpoint of the job's directory that the next attempt may load.
struct LoadableCheckpoint {
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string path;
  uint64_t size_bytes = 0;
};

// The step from which an attempt of the job resumed; 0: it began at the beginning.
struct AttemptStart {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// The rank has loaded everything and begins its first step. Rank 0 alone sets the three lists.
struct Ready {
  uint64_t step = 0;                              // Of the checkpoint that was loaded; 0: none.
  std::vector<std::string> refused = {};          // Why newer ones could not be loaded.
  std::vector<LoadableCheckpoint> loadable = {};  // Newest first.
  std::vector<AttemptStart> earlier_starts = {};  // Oldest first. Others may not know of them.
};

// A rank's calls of one operation among the ranks of one group.
struct CollectiveUse {
  std::string op;     // "all_gather"
  std::string group;  // "data", or "everyone"
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
};

// One optimizer step, as this rank measured it. The times except `data` and `checkpoint` add up to
// `seconds`.
struct Step : StepNumbers {
  uint64_t step = 0;
  uint64_t tokens = 0;  // Of the global batch.
  double seconds = 0;   // Of the slowest rank.
  PhaseSeconds phases;
  std::optional<double> peak_flops;   // Per second, all ranks together; absent: unknown.
  bool skipped = false;               // The update was not finite, and was not committed.
  double model_flops = 0;             // Of the whole global batch, by the convention "exact".
  uint64_t memory_bytes = 0;          // Device memory that this rank uses (Backend::MemoryInUse).
  uint64_t memory_planned_bytes = 0;  // Planned for tensors.
  double time = 0;                    // Unix seconds at the end of the step.
  std::vector<CollectiveUse> collectives = {};  // Since the previous step.
  std::optional<GpuReading> gpu = {};           // The rank's GPU, as read by the worker.
  // Absent: the step is of this attempt. Otherwise it is of an earlier attempt, and rank 0 has read
  // its record from the checkpoint directory.
  std::optional<uint64_t> epoch = {};
};

struct CheckpointId {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// A checkpoint was committed, or saving it failed. Sent by rank 0.
struct Checkpoint {
  uint64_t step = 0;
  std::string path;
  uint64_t size_bytes = 0;
  double seconds = 0;
  // The job's checkpoints that still exist; empty: not known.
  std::vector<CheckpointId> retained = {};
  // Why saving failed. If set, only the step is set besides.
  std::optional<std::string> error = {};
};

// A heartbeat: how far the rank has come. A thread that does nothing else sends it again and again,
// and `count` grows only when work is done.
struct Progress {
  std::string phase;  // "starting" "data" "step" "validation" "checkpoint"
  uint64_t step = 0;  // 0: before the first step.
  uint64_t count = 0;
  bool waiting = false;  // The rank is inside an operation among ranks.
};

// Rendezvous. Values are bytes here and base64 on the wire.
struct Set {
  std::string key;
  std::string value;
};
struct Get {
  std::string key;
};
struct Value {
  std::string key;
  std::string value;
};

// Tells the rank to finish its step, save a checkpoint and exit with 0.
struct Stop {};

// The daemon has handled the trainer's messages up to this sequence number.
struct Ack {
  uint64_t up_to = 0;
};

// A message of a type that this version does not know. It is ignored.
struct Unknown {};

using Message =
    std::variant<Hello, Ready, Step, Checkpoint, Set, Get, Value, Stop, Ack, Progress, Unknown>;

// A message as it is sent. `sequence` numbers the messages that must not be lost (ready, step,
// checkpoint, set), from 1 in each trainer process. All other messages have 0.
struct Envelope {
  Message message;
  uint64_t sequence = 0;
};

// Returns one line, without the line break.
std::string Encode(const Envelope& envelope);
// INVALID_ARGUMENT: a field is missing or has another type, or a hello has another version; the
// message names it.
absl::StatusOr<Envelope> Decode(absl::string_view line);

}  // namespace trainyard::channel
