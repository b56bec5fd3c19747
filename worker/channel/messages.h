// The messages between a trainer and its worker daemon over a local socket (docs/formats.md,
// section "Local socket"). Here are the structs, besides those of common/rank_records.h; the .cc
// file has their JSON. client.h and server.h are the two ends.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rank_records.h"

namespace trainyard::channel {

constexpr int kVersion = 1;
constexpr size_t kMaxLineBytes = 128 << 10;

struct Hello {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  int64_t pid = 0;
};

using Ready = StartRecord;
using Step = StepRecord;
using Checkpoint = CheckpointRecord;

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
