// Converts workers to and from their messages, with one function for each message. The messages
// that come in are within their bounds (controller/service/bounds.h).

#pragma once

#include "absl/status/statusor.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/cluster.pb.h"
#include "trainyard/v1/worker.pb.h"

namespace trainyard::controller {

inline constexpr uint32_t kWorkerProtocolVersion = 2;

// FAILED_PRECONDITION: the worker speaks another protocol version. INVALID_ARGUMENT: two devices
// have the same index.
absl::StatusOr<Registration> FromProto(const v1::Register& message);
RankStatus FromProto(const v1::RankStatus& status);
StepReport FromProto(const v1::StepReport& report);
v1::ConnectResponse ToProto(const Order& order);
v1::Worker ToProto(const Worker& worker, const Coordinator::Holders& holders);

}  // namespace trainyard::controller
