// Workers on the wire and inside, one function a message.

#pragma once

#include "absl/status/statusor.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/cluster.pb.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

inline constexpr uint32_t kWorkerProtocolVersion = 2;

// FAILED_PRECONDITION: another protocol version. INVALID_ARGUMENT: what no worker of ours says.
absl::StatusOr<Registration> FromProto(const v1::Register& message);

// Of every later message, before it is read further. INVALID_ARGUMENT: it names a job by what is no
// job's id, or a checkpoint by what is no path.
absl::Status CheckReport(const v1::ConnectRequest& message);

RankStatus FromProto(const v1::RankStatus& status);
StepReport FromProto(const v1::StepReport& report);
CheckpointReport FromProto(const v1::CheckpointReport& report);
v1::ConnectResponse ToProto(const Order& order);
v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders);

}  // namespace trainyard::controller
