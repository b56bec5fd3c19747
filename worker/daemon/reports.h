// What a daemon and a controller say to each other, as plain structs; worker/service turns them
// into the messages of proto/trainyard/v1/worker.proto, which says what each means.

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

enum class RankState { kStarting, kReady, kExited };

struct RankExit {
  ExitCause cause = ExitCause::kOther;
  int signal = 0;     // 0: it was not one.
  int exit_code = 0;  // When signal is 0.
  std::string message = {};
};

struct RankStatus {
  RankId id;
  RankState state = RankState::kStarting;
  RankExit exit;  // With kExited.
  uint32_t device = 0;
  channel::Ready ready = {};  // With kReady.
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

// Must not be lost: numbered, and sent again until acknowledged.
using Report = std::variant<RankStatus, StepReport, CheckpointReport>;

struct LogLine {
  absl::Time time;
  RankId id;
  std::string text;
};
struct LogReport {
  std::vector<LogLine> lines;  // Of one job.
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

// As good as the connection: whoever adds one adds it again after a reconnect, if it still matters.
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
  std::vector<Rank> ranks;  // Of this worker.
  std::string job_config;   // JSON; opaque but for `precision`.
  // What is recorded of earlier attempts (train/config/trainer_config.h).
  bool claimed = false;
  uint64_t recorded_step = 0;
  uint64_t history_after = 0;
  uint64_t recorded_epoch = 0;
  std::vector<std::string> roots = {};  // Narrow the daemon's own; empty: they do not.
};

enum class StopMode { kCheckpoint, kKill };
struct StopOrder {
  std::string job_id;
  uint64_t epoch = 0;  // Stops this one and all before it.
  StopMode mode = StopMode::kKill;
};

struct RendezvousAnswer {
  std::string job_id;
  uint64_t epoch = 0;
  std::string key;
  std::string value;
};

}  // namespace trainyard
