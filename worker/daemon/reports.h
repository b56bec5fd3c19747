// What a daemon tells the controller and is told, besides common/worker_messages.h. worker/service
// translates it to and from the messages of proto/trainyard/v1/worker.proto, which documents the
// fields.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/worker_messages.h"
#include "worker/channel/messages.h"

namespace trainyard {

struct StepReport {
  RankId id;
  channel::Step step;
};

// Reports must not be lost. They are numbered, and sent again until they are acknowledged.
using Report = std::variant<RankStatus, StepReport, CheckpointReport>;

struct RendezvousSet : RendezvousValue {};
struct RendezvousGet : RendezvousValue {};
struct Draining {};

// Notices are lost with the connection. After a reconnect their sender adds them again if they
// still matter.
using Notice = std::variant<LogReport, RendezvousSet, RendezvousGet, Draining>;

struct Outgoing {
  uint64_t sequence = 0;  // 0: a notice.
  std::variant<Report, Notice> message;
};

struct StartOrder {
  std::string job_id;
  uint64_t epoch = 0;
  uint32_t world = 0;
  std::vector<RankPlacement> ranks;  // The ranks on this worker.
  std::string job_config;            // JSON. Only the job's directories are read here.
  // The record of earlier attempts (common/rank_config.h).
  bool claimed = false;
  uint64_t recorded_step = 0;
  uint64_t history_after = 0;
  uint64_t recorded_epoch = 0;
  std::vector<std::string> roots = {};  // They narrow the daemon's own roots; empty: they do not.
};

}  // namespace trainyard
