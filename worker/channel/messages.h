// What a trainer and its worker daemon say to each other over a local socket: docs/formats.md,
// section "Local socket". Structs here, JSON in the .cc; client.h and server.h are the two ends.

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

// From which step an attempt of the job went on; 0: from the beginning.
struct AttemptStart {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// Everything is loaded; the first step begins.
struct Ready {
  uint64_t step = 0;                              // Of the checkpoint that was loaded; 0: none.
  std::vector<std::string> refused = {};          // Why newer ones were not; from rank 0 alone,
  std::vector<LoadableCheckpoint> loadable = {};  // as these, newest first, and
  std::vector<AttemptStart> earlier_starts = {};  // these, oldest first: nobody may know of them.
};

// Calls of one operation among the ranks of one group.
struct CollectiveUse {
  std::string op;     // "all_gather"
  std::string group;  // "data", or "everyone"
  uint64_t calls = 0;
  uint64_t bytes = 0;  // Sent by this rank.
  double seconds = 0;
};

// How a GPU fares; absent what it does not tell.
struct GpuReading {
  std::optional<double> utilization = {};        // 0 to 1: the share of time in which a kernel ran.
  std::optional<double> memory_used_bytes = {};  // By everybody.
  std::optional<double> power_watts = {};
  std::optional<double> sm_clock_hertz = {};
  std::optional<double> temperature_celsius = {};
  std::vector<std::string> throttle_reasons = {};  // Why its clock is held down: "sw_power_cap".
};

// One optimizer step as this rank saw it; all times but `data` and `checkpoint` sum to `seconds`.
struct Step : StepNumbers {
  uint64_t step = 0;
  uint64_t tokens = 0;  // Of the global batch.
  double seconds = 0;   // Of the slowest rank.
  PhaseSeconds phases;
  std::optional<double> peak_flops;   // Per second, of all ranks together; absent: unknown.
  bool skipped = false;               // Not finite: the update was not committed.
  double model_flops = 0;             // Of the whole global batch, convention exact.
  uint64_t memory_bytes = 0;          // Of its device, that it uses (Backend::MemoryInUse).
  uint64_t memory_planned_bytes = 0;  // What planning predicted for tensors.
  double time = 0;                    // Unix seconds at the end of the step.
  std::vector<CollectiveUse> collectives = {};  // Since the step before.
  std::optional<GpuReading> gpu = {};           // Of its device, by its worker.
  // Absent: this attempt. Otherwise the record is one of an earlier attempt, which rank 0 has read
  // from the checkpoint directory.
  std::optional<uint64_t> epoch = {};
};

struct CheckpointId {
  uint64_t epoch = 0;
  uint64_t step = 0;
};

// Rank 0, after the commit, or after it failed.
struct Checkpoint {
  uint64_t step = 0;
  std::string path;
  uint64_t size_bytes = 0;
  double seconds = 0;
  std::vector<CheckpointId> retained = {};  // Those of the job that still exist; empty: not known.
  std::optional<std::string> error = {};    // Why there is none; then only the step is set.
};

// A heartbeat: how far the rank has come. Sent over and over, by a thread that does nothing else;
// `count` grows with the work alone.
struct Progress {
  std::string phase;  // "starting" "data" "step" "validation" "checkpoint"
  uint64_t step = 0;  // 0: before the first.
  uint64_t count = 0;
  bool waiting = false;  // In an operation among ranks.
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

// Finish the step, checkpoint, exit 0.
struct Stop {};

// The daemon has handled the trainer's messages up to this sequence number.
struct Ack {
  uint64_t up_to = 0;
};

// A type this version does not know: ignored.
struct Unknown {};

using Message =
    std::variant<Hello, Ready, Step, Checkpoint, Set, Get, Value, Stop, Ack, Progress, Unknown>;

// A message as it travels. `sequence` counts, from 1 in each trainer process, the messages that
// must not be lost (ready, step, checkpoint, set); 0 for all others.
struct Envelope {
  Message message;
  uint64_t sequence = 0;
};

// One line, without the line break.
std::string Encode(const Envelope& envelope);
// INVALID_ARGUMENT names the field that is missing or of another type, or the version that a hello
// has.
absl::StatusOr<Envelope> Decode(absl::string_view line);

}  // namespace trainyard::channel
