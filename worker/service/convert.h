// Converts the daemon's structs to and from the messages of the worker stream, with one function
// for each message.

#pragma once

#include "trainyard/v1/worker.pb.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/reports.h"

namespace trainyard {

v1::Device ToProto(const Device& device);
v1::RankStatus ToProto(const RankStatus& status);
v1::ConnectRequest ToProto(const Outgoing& outgoing);

StartOrder FromProto(const v1::StartRanks& message);
// An unspecified mode counts as kKill, because ranks that should not run must not continue.
StopOrder FromProto(const v1::StopRanks& order);

}  // namespace trainyard
