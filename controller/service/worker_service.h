// WorkerService: one bidirectional stream a worker, each served by a reactor that feeds the
// coordinator.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/workers/coordinator.h"
#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard::controller {

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerService(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;  // Outlives the server.
};

}  // namespace trainyard::controller
