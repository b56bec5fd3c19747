// The messages between a daemon and a controller, as plain structs. worker/service translates them
// to and from the messages of proto/trainyard/v1/worker.proto, which documents the fields.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker/channel/exit_cause.h"
#include "worker/channel/messages.h"

namespace trainyard {

struct RankId {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  auto operator<=>(const RankId&) const = default;
  std::string Name() const { return absl::StrCat(job_id, ".", epoch, ".", rank); }
};

enum class RankState { kStarting = 1, kReady = 2, kExited = 3 };  // Numbered as on the wire.

struct RankExit {
  ExitCause cause = ExitCause::kOther;
  int signal = 0;     // 0: no signal ended the process.
  int exit_code = 0;  // Set if signal is 0.
  std::string message = {};
};

struct RankStatus {
  RankId id;
  RankState state = RankState::kStarting;
  RankExit exit;  // Set with kExited.
  uint32_t device = 0;
  channel::Ready ready = {};  // Set with kReady.
};

struct StepReport {
  RankId id;
  channel::Step step;
};

struct CheckpointReport {
  RankId id;
  channel::Checkpoint checkpoint;
  absl::Time time;
};

// Reports must not be lost. They are numbered, and sent again until they are acknowledged.
using Report = std::variant<RankStatus, StepReport, CheckpointReport>;

struct LogLine {
  absl::Time time;
  RankId id;
  std::string text;
};
struct LogReport {
  std::vector<LogLine> lines;  // All of one job.
};
struct RendezvousSet {
  RankId id;
  channel::Set set;
};
struct RendezvousGet {
  RankId id;
  std::string key;
};
struct Draining {};

// Notices are lost with the connection. After a reconnect their sender adds them again if they
// still matter.
using Notice = std::variant<LogReport, RendezvousSet, RendezvousGet, Draining>;

struct Outgoing {
  uint64_t sequence = 0;  // 0: a notice.
  std::variant<Report, Notice> message;
};

struct StartOrder {
  struct Rank {
    uint32_t rank = 0;
    uint32_t device = 0;
  };
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t world = 0;
  std::vector<Rank> ranks;  // The ranks on this worker.
  std::string job_config;   // JSON. Only `precision` is read here.
  // The record of earlier attempts (train/config/trainer_config.h).
  bool claimed = false;
  uint64_t recorded_step = 0;
  uint64_t history_after = 0;
  uint64_t recorded_epoch = 0;
  std::vector<std::string> roots = {};  // They narrow the daemon's own roots; empty: they do not.
};

enum class StopMode { kCheckpoint, kKill };
struct StopOrder {
  std::string job_id;
  uint64_t epoch = 0;  // This epoch and all earlier ones stop.
  StopMode mode = StopMode::kKill;
};

struct RendezvousAnswer {
  std::string job_id;
  uint64_t epoch = 0;
  std::string key;
  std::string value;
};

}  // namespace trainyard
