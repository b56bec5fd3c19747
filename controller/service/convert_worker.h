// Converts workers to and from their messages, with one function for each message.

#pragma once

#include "absl/status/statusor.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/cluster.pb.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

inline constexpr uint32_t kWorkerProtocolVersion = 2;

// FAILED_PRECONDITION: the worker speaks another protocol version. INVALID_ARGUMENT: no worker of
// ours sends such a message.
absl::StatusOr<Registration> FromProto(const v1::Register& message);

// Checks every later message before it is read further. INVALID_ARGUMENT: the message names a job
// by something that is not a job's id, or a checkpoint by something that is not a path.
absl::Status CheckReport(const v1::ConnectRequest& message);

RankStatus FromProto(const v1::RankStatus& status);
StepReport FromProto(const v1::StepReport& report);
CheckpointReport FromProto(const v1::CheckpointReport& report);
v1::ConnectResponse ToProto(const Order& order);
v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders);

}  // namespace trainyard::controller
