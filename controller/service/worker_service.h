// WorkerService: one bidirectional stream a worker, each served by a reactor that feeds the
// coordinator.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/gate.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard::controller {

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(Coordinator& coordinator, const Gate& gate)
      : coordinator_(coordinator), gate_(gate) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;  // Outlives the server, as does the next.
  const Gate& gate_;
};

}  // namespace trainyard::controller
