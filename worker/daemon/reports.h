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

}  // namespace trainyard
